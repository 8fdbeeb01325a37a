"""exactly-once 0.2.1: `once` over SQLite, default policy (quarantine). It is a library without an HTTP layer: the statuses
below are this server's own, chosen by the IETF draft."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from charges import FILE, Raised, charge, fastapi_app, serve_asgi
from exactly_once import Store, once
from exactly_once.errors import KeyReuseError, QuarantinedError
from fastapi import FastAPI

store = Store.sqlite(FILE + ".db")


def guarded(key, body, query):
    @once(store, key=key, fingerprint=lambda body, query: body)
    def execute(body, query):
        return list(charge(body, query))

    try:
        return execute(body, query)
    except QuarantinedError as error:
        return 409, {"error": str(error)}
    except KeyReuseError as error:
        return 422, {"error": str(error)}
    except Raised as error:
        return 500, {"error": str(error)}


threads = ThreadPoolExecutor(32)


async def handle(key, caller, body, query):
    if not key:
        return 400, {"error": "Idempotency-Key is missing"}
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, guarded, f"{caller}/{key}", body, dict(query))


serve_asgi(fastapi_app(FastAPI(), handle))
