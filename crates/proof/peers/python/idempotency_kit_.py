"""idempotency-kit 0.5.0: the coordinator over Redis with defaults, and a fingerprint of the body. It is a library without an
HTTP layer: the statuses below are this server's own, chosen by the IETF draft."""

from charges import REDIS, Raised, charge_async, fastapi_app, serve_asgi
from fastapi import FastAPI
from idempotency_kit import AsyncIdempotencyCoordinator, async_idempotent
from idempotency_kit.core.adapters.basic import JsonResultAdapter
from idempotency_kit.core.exceptions import IdempotencyInProgressError, IdempotencyKeyReuseError, IdempotencyValidationError
from idempotency_kit.core.services.domain import IdempotencyDomainService
from idempotency_kit.infra.storage.redis.aio.repository import RedisAsyncIdempotencyRepository
from redis.asyncio import from_url

coordinator = AsyncIdempotencyCoordinator(RedisAsyncIdempotencyRepository(from_url(REDIS)), IdempotencyDomainService())


@async_idempotent(operation="charge.create", adapter=JsonResultAdapter(), fingerprint_params=("body",), infra_param="coordinator")
async def execute(body, query, idempotency_key=None, coordinator=None):
    return list(await charge_async(body, query))


async def handle(key, caller, body, query):
    if not key:
        return 400, {"error": "Idempotency-Key is missing"}
    try:
        return await execute(body, dict(query), idempotency_key=f"{caller}/{key}", coordinator=coordinator)
    except IdempotencyInProgressError as error:
        return 409, {"error": str(error)}
    except IdempotencyKeyReuseError as error:
        return 422, {"error": str(error)}
    except IdempotencyValidationError as error:
        return 400, {"error": str(error)}
    except Raised as error:
        return 500, {"error": str(error)}


serve_asgi(fastapi_app(FastAPI(), handle))
