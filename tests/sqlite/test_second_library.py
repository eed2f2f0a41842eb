"""Another library opens the database file in a process that has Detent open: it is refused, and no job is lost.

Each case runs in a process of its own that acknowledges jobs, lets the other library at the file, acknowledges more
and is killed. Then the file must hold every job that was acknowledged.
"""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import apsw
import pytest

import detent

SOURCES = Path(detent.__file__).parent.parent
PROGRAM = """
import asyncio, os, shutil, sqlite3, sys
from detent import Detent
from detent.core.errors import SqliteFileInUse
PATH = sys.argv[1]
app = Detent(f"sqlite:///{PATH}")

@app.job("work")
async def work(n: int) -> None: ...

def intrude():
INTRUDE

async def main():
    for n in range(10):
        print((await work.enqueue(n=n)).id, flush=True)
    try:
        intrude()
        print("allowed", flush=True)
    except Exception as error:
        assert isinstance(error, SqliteFileInUse) or isinstance(error.__cause__, SqliteFileInUse), repr(error)
        assert "app.connection()" in str(error), str(error)
        print("refused", flush=True)
    for n in range(10):
        print((await work.enqueue(n=n)).id, flush=True)
    print("done", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
INTRUDERS = {
    "sqlite3": """
        connection = sqlite3.connect(PATH)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        connection.close()
    """,
    "sqlite3 by URI, read-only": """
        connection = sqlite3.connect(f"file:{PATH}?mode=ro", uri=True)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        connection.close()
    """,
    "sqlite3 by a symbolic link": """
        os.symlink(PATH, PATH + ".link")
        sqlite3.connect(PATH + ".link").execute("SELECT count(*) FROM sqlite_schema").fetchall()
    """,
    "sqlalchemy": """
        import sqlalchemy
        engine = sqlalchemy.create_engine(f"sqlite:///{PATH}")
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE mine (a int)"))
        engine.dispose()
    """,
    "django": """
        import django
        from django.conf import settings
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": PATH}})
        django.setup()
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        from django.db import connection
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM sqlite_schema")
        connection.close()
    """,
    "open and close": """
        open(PATH, "rb").close()
    """,
    "os.open of the shared memory": """
        os.close(os.open(PATH + "-shm", os.O_RDONLY))
    """,
    "shutil.copy": """
        shutil.copy(PATH, PATH + ".copy")
    """,
}


def run(path: Path, intrude: str) -> tuple[list[str], str]:
    """Ids of acknowledged jobs, and whether the intruder was allowed or refused; the process is killed at its end."""
    body = textwrap.indent(textwrap.dedent(intrude).strip(), "    ")
    program = PROGRAM.replace("INTRUDE", body)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if lines[-1] == "done":
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    verdicts = [line for line in lines if line in ("allowed", "refused", "done")]
    assert verdicts[1:] == ["done"], lines
    return [line for line in lines if line not in verdicts], verdicts[0]


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_no_acknowledged_job_is_lost(tmp_path: Path, intruder: str) -> None:
    path = tmp_path / "jobs.db"
    acknowledged, verdict = run(path, INTRUDERS[intruder])
    stored = {row[0] for row in apsw.Connection(str(path)).execute("SELECT id FROM detent_jobs")}
    assert len(acknowledged) == 20 and set(acknowledged) <= stored
    assert verdict == "refused"


def test_a_file_that_another_library_has_open_is_refused(tmp_path: Path) -> None:
    """The other library came first: closing it later would release Detent's locks."""
    import asyncio
    import sqlite3

    from detent import Detent
    from detent.core.errors import SqliteFileInUse

    path = tmp_path / "jobs.db"

    async def open_and_close() -> None:
        async with Detent(f"sqlite:///{path}"):
            pass

    asyncio.run(open_and_close())
    other = sqlite3.connect(path)
    other.execute("SELECT 1 FROM sqlite_schema").fetchall()
    with pytest.raises(SqliteFileInUse, match="already open"):
        asyncio.run(open_and_close())
    other.close()
    asyncio.run(open_and_close())


def test_after_close_the_file_is_free(tmp_path: Path) -> None:
    import asyncio
    import shutil

    from detent import Detent

    path = tmp_path / "jobs.db"

    async def open_and_close() -> None:
        async with Detent(f"sqlite:///{path}"):
            pass

    asyncio.run(open_and_close())
    shutil.copy(path, tmp_path / "copy.db")
