"""aws-lambda-powertools 3.37.0: `idempotent_function` over its own Redis persistence, defaults: an hour, and the body is
not compared. (With `payload_validation_jmespath` every replay is refused: this persistence loses the hash of the body when it
completes a record.) The handler is a Lambda's; this server calls it, and its statuses are the IETF draft's. One Lambda context of 30 s per request."""

import asyncio, os
from concurrent.futures import ThreadPoolExecutor

os.environ["POWERTOOLS_DEV"] = "true"
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyKeyError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from charges import REDIS, Raised, charge, fastapi_app, serve_asgi
from fastapi import FastAPI

store = CachePersistenceLayer(url=REDIS)


class Context:
    def get_remaining_time_in_millis(self):
        return 30_000


config = IdempotencyConfig(
    event_key_jmespath="key", raise_on_no_idempotency_key=True, lambda_context=Context()
)


@idempotent_function(data_keyword_argument="event", persistence_store=store, config=config)
def execute(event):
    return list(charge(event["body"], event["query"]))


def guarded(event):
    try:
        return execute(event=event)
    except IdempotencyAlreadyInProgressError as error:
        return 409, {"error": str(error)}
    except IdempotencyValidationError as error:
        return 422, {"error": str(error)}
    except IdempotencyKeyError as error:
        return 400, {"error": str(error)}
    except Raised as error:
        return 500, {"error": str(error)}


threads = ThreadPoolExecutor(32)


async def handle(key, caller, body, query):
    event = {"key": key and f"{caller}/{key}", "body": body, "query": dict(query)}
    return await asyncio.get_running_loop().run_in_executor(threads, guarded, event)


serve_asgi(fastapi_app(FastAPI(), handle))
