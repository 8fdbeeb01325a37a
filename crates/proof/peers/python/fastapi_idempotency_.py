"""fastapi-idempotency 0.1.1: one process with the memory store, and `scope` by the caller, as its README recommends."""

from charges import fastapi_app, serve_asgi
from fastapi import FastAPI
from fastapi_idempotency import IdempotencyMiddleware

app = fastapi_app(FastAPI())
app.add_middleware(IdempotencyMiddleware, scope=lambda request: request.headers.get("x-api-key", "anonymous"))
serve_asgi(app)
