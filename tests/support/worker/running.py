"""A worker on the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from detent import Detent
from detent.worker.worker import Worker


@asynccontextmanager
async def working(app: Detent, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker until the end of the block; jobs that still run are handed back."""
    worker = await app.worker(**options)
    task = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield worker
    finally:
        if not task.done():
            worker.stop()
            worker.stop()
        assert await asyncio.wait_for(task, 30) == 0
