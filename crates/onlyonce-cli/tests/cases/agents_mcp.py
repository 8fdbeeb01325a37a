"""A server and a client of the Model Context Protocol by its own SDK: `serve`, or `call URL`."""

import asyncio
import contextlib
import socket
import sys

import uvicorn
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer


def serve():
    charges = []
    server = MCPServer("bank")

    @server.tool()
    def charge(amount: int) -> str:
        charges.append(amount)
        return f"charge {len(charges)} of {amount}"

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


async def call(url):
    for other_calls in range(3):
        async with contextlib.AsyncExitStack() as stack:
            streams = await stack.enter_async_context(streamable_http_client(url))
            session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
            await session.initialize()
            # Each session counts its ids from one: these calls make the id of the charge another one.
            for _ in range(other_calls):
                await session.list_tools()
            meta = {"idempotencyKey": "one-key-for-one-charge"}
            result = await session.call_tool("charge", {"amount": 7998}, 10, meta=meta)
            print(result.content[0].text)


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else asyncio.run(call(sys.argv[2]))
