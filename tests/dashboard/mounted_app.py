"""A FastAPI application that mounts the dashboard under a prefix; prints its URL as JSON."""

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI

from detent import Detent
from detent.web.app import create_app
from detent.web.http.settings import Settings


async def main(database_url: str) -> None:
    dashboard = create_app(Detent(database_url), Settings(open_without_tokens=True))
    outer = FastAPI()
    outer.mount("/ops/detent", dashboard)
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(json.dumps({"at": f"http://127.0.0.1:{listener.getsockname()[1]}"}) + "\n")
    sys.stdout.flush()
    await uvicorn.Server(uvicorn.Config(outer, log_level="warning")).serve([listener])
    await dashboard.state.web.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
