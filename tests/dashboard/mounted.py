"""A user's own ASGI application with the dashboard under a prefix, behind nothing; prints where it listens."""

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI

from detent import Detent
from detent.web.app import create_app
from detent.web.http.settings import Settings


async def main(url: str) -> None:
    inner = create_app(Detent(url), Settings(open_without_tokens=True))
    site = FastAPI()
    site.mount("/ops/detent", inner)
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(json.dumps({"at": f"http://127.0.0.1:{listening.getsockname()[1]}"}) + "\n")
    sys.stdout.flush()
    await uvicorn.Server(uvicorn.Config(site, log_level="warning")).serve([listening])
    await inner.state.web.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
