"""examples/shop_django on a Postgres database, with processes of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.web.served import SOURCES

PROJECT = Path(__file__).parents[3] / "examples" / "shop_django"


def environment(url: str) -> dict[str, str]:
    """Connections of psycopg, which Django uses, are named `django`; those of Detent have no name."""
    path = os.pathsep.join([SOURCES, str(PROJECT)])
    given = {"DATABASE_URL": url, "DETENT_URL": url, "PYTHONPATH": path, "PGAPPNAME": "django"}
    return os.environ | given | {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONUNBUFFERED": "1"}


def manage(url: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment(url), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def process(url: str, log: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that runs during the block and then ends by SIGTERM."""
    with log.open("wb") as output:
        started = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, env=environment(url), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield started
            started.terminate()
            started.wait(40)
        finally:
            started.kill()
            started.wait()
