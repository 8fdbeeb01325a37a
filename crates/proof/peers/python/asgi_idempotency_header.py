"""asgi-idempotency-header 0.2.0 as its README shows it: the Redis backend, defaults."""

from charges import REDIS, fastapi_app, serve_asgi
from fastapi import FastAPI
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from redis.asyncio import from_url

app = fastapi_app(FastAPI())
app.add_middleware(IdempotencyHeaderMiddleware, backend=RedisBackend(redis=from_url(REDIS)))
serve_asgi(app)
