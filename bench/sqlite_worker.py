"""A worker process of its own, for measuring pickup across processes."""

import asyncio
import sys
from pathlib import Path

from .sqlite_detent import make_app

if __name__ == "__main__":
    asyncio.run(make_app(Path(sys.argv[1])).run_worker(slots=8))
