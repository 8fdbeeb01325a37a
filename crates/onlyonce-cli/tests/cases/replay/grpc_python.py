"""A gRPC service and a client of grpcio, without generated code: `serve`, or `call ADDRESS`."""

import sys
from concurrent import futures

import grpc

CHARGE = "/pay.Pay/Charge"


def serve():
    executed = []

    def charge(request, context):
        executed.append(request)
        context.set_trailing_metadata([("charged", str(len(executed)))])
        if request == b"poor":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "balance too low")
        return b"charge %d" % len(executed)

    def stream(requests, context):
        for request in requests:
            yield request.upper()

    handlers = {
        "Charge": grpc.unary_unary_rpc_method_handler(charge),
        "Echo": grpc.stream_stream_rpc_method_handler(stream),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pay.Pay", handlers)])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()


def call(address):
    channel = grpc.insecure_channel(address)
    charge = channel.unary_unary(CHARGE)

    def told(request, key, **metadata):
        fields = [("idempotency-key", key)] if key else []
        try:
            answer, done = charge.with_call(request, metadata=fields, timeout=20)
            trailers = dict(done.trailing_metadata())
            print("OK", answer.decode(), trailers.get("charged"))
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata())
            details = trailers.get("grpc-status-details-bin", b"")
            print(error.code().name, b"google.rpc.ErrorInfo" in details, trailers.get("charged"))

    told(b"rich", "key-of-the-first-charge")
    told(b"rich", "key-of-the-first-charge")
    told(b"other", "key-of-the-first-charge")
    told(b"poor", "key-of-a-poor-charge-01")
    told(b"poor", "key-of-a-poor-charge-01")
    told(b"rich", "")
    echo = channel.stream_stream("/pay.Pay/Echo")
    print(*[answer.decode() for answer in echo(iter([b"a", b"b"]), timeout=20)])


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else call(sys.argv[2])
