"""The doctor's checks of a SQLite file: library version, WAL size, indexes, free pages. Reads only."""

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw

from .database import Finding

_SAFE_VERSION = (3, 51, 3)
"""The first SQLite without the WAL-reset bug, which can corrupt a database with several writers."""
_MAX_WAL_BYTES = 256 << 20
_MAX_FREE_BYTES = 64 << 20
REQUIRED_INDEXES = {f"detent_{name}" for name in ("jobs_ready", "jobs_later", "jobs_leased", "jobs_task")}
"""Without these indexes, claiming, waking and reclaiming jobs would scan all jobs."""


def findings(path: str) -> Iterator[Finding]:
    yield _library()
    wal = Path(path + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > _MAX_WAL_BYTES:
        advice = "end the process that keeps an old snapshot open (a forgotten shell, a backup); then the WAL shrinks"
        yield Finding("snapshots", False, f"the WAL has {size >> 20} MB: a reader keeps an old snapshot open", advice)
    else:
        yield Finding("snapshots", True, f"the WAL has {size >> 20} MB")
    yield _open_files(path)
    with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        yield _indexes(connection)
        yield _free_space(connection)


def _open_files(path: str) -> Finding:
    """Processes that have a removed file of this database open lose what they commit (Linux only)."""
    names = {f"{os.path.realpath(path)}{suffix} (deleted)" for suffix in ("", "-wal", "-shm")}
    processes = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) in names:
                processes.add(link.parts[2])
    if processes:
        message = f"process {', '.join(sorted(processes, key=int))} writes to a file that was removed or replaced"
        return Finding("open files", False, message, "stop these processes; what they commit is lost")
    return Finding("open files", True, "no process has a removed file of this database open")


def _library() -> Finding:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < _SAFE_VERSION:
        return Finding("version", False, f"SQLite {version} may lose data with several writers", "upgrade apsw")
    return Finding("version", True, f"SQLite {version}")


def _indexes(connection: apsw.Connection) -> Finding:
    existing = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    missing = sorted(REQUIRED_INDEXES - existing)
    if missing:
        advice = "recreate them; `detent migrate --sql` prints their definitions"
        return Finding("indexes", False, f"missing: {', '.join(missing)}", advice)
    return Finding("indexes", True, f"all {len(REQUIRED_INDEXES)} required indexes exist")


def _free_space(connection: apsw.Connection) -> Finding:
    pages, free, size = (connection.pragma(name) for name in ("page_count", "freelist_count", "page_size"))
    message = f"{pages * size >> 20} MB, {free * size >> 20} MB of it free for reuse"
    is_large = free * size > _MAX_FREE_BYTES and free > pages // 2
    advice = "new jobs reuse the free pages; to shrink the file, stop the workers and run VACUUM" if is_large else ""
    return Finding("vacuum", not is_large, message, advice)
