"""Two versions of Detent as processes: the one under test, and a copy of it with one migration more."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import detent

SCRIPT = Path(__file__).with_name("upgrade_app.py")
SOURCE = Path(detent.__file__).parent
NEXT = "99.0.0"


@dataclass(frozen=True)
class Version:
    """A version of Detent. `source` is the folder that contains the package."""

    source: Path

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "detent", *words], env=self._environment(), capture_output=True, text=True
        )

    def migrate(self, url: str) -> None:
        migrated = self.command("migrate", "--url", url)
        assert migrated.returncode == 0, migrated.stderr

    @contextmanager
    def worker(self, url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, killed at the end."""
        words = ["worker", str(SCRIPT), "--url", url, "--slots", "3", "--lease-seconds", "3"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "detent", *words], env=self._environment(), stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.source), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


PRESENT = Version(SOURCE.parent)


def next_version(folder: Path, migration: str, number: int = 2) -> Version:
    """A copy of the package whose stores have this migration as a file."""
    copy = folder / "next" / "detent"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "static", "templates"))
    for store in ("sqlite", "postgres"):
        (copy / "stores" / store / "migrations").mkdir(exist_ok=True)
        (copy / "stores" / store / "migrations" / f"{number:04}_next.sql").write_text(migration)
    version = copy / "version.py"
    version.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{NEXT}"', version.read_text()))
    return Version(copy.parent)


def additive(tables: Iterable[str]) -> str:
    """A migration that old programs can live with: a column in every table, a table, an index."""
    columns = [f"ALTER TABLE detent.{table} ADD COLUMN of_next integer NOT NULL DEFAULT 7;" for table in tables]
    return "\n".join([*columns, "CREATE TABLE detent.of_next (id integer PRIMARY KEY);"])


def breaking(url: str) -> str:
    """A migration that renames a column which every submit and every claim of older programs uses."""
    table = "jobs" if url.startswith("sqlite:") else "queue"
    return f"-- breaking\nALTER TABLE detent.{table} RENAME COLUMN due_at TO due;"
