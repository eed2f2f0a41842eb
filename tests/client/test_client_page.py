"""docs/guides/client.md: its blocks are one program, which runs against a worker process."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import detent
from support.servers.databases import house, newest

SOURCE = Path(detent.__file__).parent.parent
PAGE = (SOURCE.parent / "docs" / "guides" / "client.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MAIN = """
import asyncio


async def main() -> None:
    async with app:
        await results()
        await operations()


if __name__ == "__main__":
    asyncio.run(main())
    blocking()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    database = house(newest()).database()
    yield database.url
    database.release()


def test_the_blocks_run(url: str, tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text("\n\n".join([*BLOCKS, MAIN]))
    environment = os.environ | {"DETENT_URL": url, "PYTHONPATH": str(SOURCE)}
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "detent", "worker", str(script)]
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=90, check=False
        )
    finally:
        worker.terminate()
        worker.wait()
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + (tmp_path / "log").read_text()
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [
        ["job.created", "queued"],
        ["job.cancelled", "cancelled"],
    ]
