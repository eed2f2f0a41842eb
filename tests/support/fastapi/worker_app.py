"""A server with a worker in its process and Detent mounted at /ops; started as `worker_app.py URL`.

Prints its address as JSON, `running` when the job has begun, and `finished` when it has ended after the stop.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request

from detent import Context, Detent
from detent.integrations.fastapi import Person, lifespan, mount


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(url: str) -> None:
    jobs = Detent(url)

    @jobs.job("work")
    async def work(ctx: Context) -> None:
        say("running")
        while not ctx.stopping:
            await asyncio.sleep(0.01)
        say("finished")

    api = FastAPI(lifespan=lifespan(jobs, worker=True))

    def everybody(request: Request) -> Person:
        return Person("ann", "viewer", "*")

    mount(api, "/ops", jobs, authenticate=everybody)

    @api.post("/work")
    async def start() -> str:
        return (await work.enqueue()).id

    listener = socket.create_server(("127.0.0.1", 0))
    say(json.dumps({"at": f"http://127.0.0.1:{listener.getsockname()[1]}"}))
    await uvicorn.Server(uvicorn.Config(api, log_level="error")).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
