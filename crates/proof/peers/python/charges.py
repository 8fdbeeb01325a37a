"""What every peer guards: a charge that is one line of a file. Usage of each server: PORT FILE REDIS

`slow_ms` in the body: how long it takes. `fail` in the query or the body: `before` and `after` raise before or after the
effect, `decline` is a 402 without an effect.
"""

import asyncio, json, sys, time, uuid

PORT, FILE, REDIS = int(sys.argv[1]), sys.argv[2], sys.argv[3]
WORK_MS = 40


class Raised(Exception):
    pass


def steps(body, query):
    """Yields the seconds to wait; returns status and body. Sync and async servers share it."""
    fail = query.get("fail") or body.get("fail")
    half = body.get("slow_ms", WORK_MS) / 2000
    yield half
    if fail == "before":
        raise Raised("failed before the effect")
    if fail == "decline":
        return 402, {"error": "declined", "id": str(uuid.uuid4())}
    with open(FILE, "a") as executions:
        executions.write(body["marker"] + "\n")
    yield half
    if fail == "after":
        raise Raised("failed after the effect")
    return 201, {"id": str(uuid.uuid4()), "marker": body["marker"]}


def charge(body, query={}):
    work = steps(body, query)
    try:
        while True:
            time.sleep(next(work))
    except StopIteration as end:
        return end.value


async def charge_async(body, query={}):
    work = steps(body, query)
    try:
        while True:
            await asyncio.sleep(next(work))
    except StopIteration as end:
        return end.value


def count(marker):
    try:
        with open(FILE) as executions:
            return sum(line == marker + "\n" for line in executions)
    except FileNotFoundError:
        return 0


def read(text):
    """The body of a request, or None where it is no JSON object."""
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) and "marker" in body else None


def serve_asgi(app):
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="critical")


def serve_wsgi(app):
    """Django's own server: one process, a thread for each connection, so that stores in memory stay one store."""
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_):
            pass

    ThreadedWSGIServer.request_queue_size = 1024
    server = ThreadedWSGIServer(("127.0.0.1", PORT), Quiet, allow_reuse_address=True)
    server.set_app(app)
    server.serve_forever()


def django_urls(decorate=lambda view: view):
    from django.http import HttpResponse, JsonResponse
    from django.urls import path
    from django.views.decorators.csrf import csrf_exempt

    def charges(request):
        body = read(request.body)
        if body is None:
            return JsonResponse({"error": "the body is not a JSON object with a marker"}, status=400)
        status, answer = charge(body, request.GET)
        return JsonResponse(answer, status=status)

    def counted(request):
        return HttpResponse(count(request.GET["marker"]))

    return [path("charges", csrf_exempt(decorate(charges))), path("count", counted)]


def fastapi_app(app, handle=None):
    """The routes; `handle(key, caller, body, query)` does the work where the peer is no middleware."""
    from fastapi import Request
    from fastapi.responses import JSONResponse, PlainTextResponse

    async def plain(key, caller, body, query):
        return await charge_async(body, query)

    @app.post("/charges")
    async def charges(request: Request):
        body = read(await request.body())
        if body is None:
            return JSONResponse({"error": "the body is not a JSON object with a marker"}, 400)
        key = request.headers.get("idempotency-key")
        caller = request.headers.get("x-api-key", "anonymous")
        status, answer = await (handle or plain)(key, caller, body, request.query_params)
        return JSONResponse(answer, status)

    @app.get("/count")
    async def counted(marker: str):
        return PlainTextResponse(str(count(marker)))

    return app
