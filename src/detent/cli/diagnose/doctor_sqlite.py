"""The doctor's checks of a SQLite file: its library, its log, its holes, its indexes. Reads only."""

from collections.abc import Iterator
from pathlib import Path

import apsw

from detent.cli.output import counted

from .finding import Finding

_SAFE = (3, 51, 3)
"""The first SQLite without the bug that several writers could lose a reset of the log to."""
_LONG_LOG = 256 << 20
_HOLES = 64 << 20
EXPECTED = {"jobs_ready", "jobs_later", "jobs_leased", "jobs_task"}
"""Indexes without which claiming, waking and expiring would read every job."""


def findings(path: str) -> Iterator[Finding]:
    yield _library()
    log = Path(path + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LONG_LOG:
        do = "end the process that keeps an old snapshot open (a forgotten shell, a backup); the log shrinks by itself"
        yield Finding("snapshots", False, f"the write-ahead log has {size >> 20} MB: somebody reads an old state", do)
    else:
        yield Finding("snapshots", True, f"the write-ahead log has {size >> 20} MB")
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        yield _indexes(connection)
        yield _holes(connection)
    finally:
        connection.close()


def _library() -> Finding:
    have = apsw.sqlite_lib_version()
    if tuple(int(part) for part in have.split(".")[:3]) < _SAFE:
        return Finding("version", False, f"SQLite {have} may lose data with several writers", "upgrade apsw")
    return Finding("version", True, f"SQLite {have}")


def _indexes(connection: apsw.Connection) -> Finding:
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    gone = sorted(EXPECTED - there)
    if gone:
        do = "somebody dropped them; `detent migrate --sql` prints how they are made"
        return Finding("indexes", False, f"missing: {', '.join(gone)}", do)
    return Finding("indexes", True, f"all {counted(len(EXPECTED), 'index', 'indexes')} the hot statements rely on")


def _holes(connection: apsw.Connection) -> Finding:
    pages, free, size = (connection.pragma(name) for name in ("page_count", "freelist_count", "page_size"))
    says = f"{pages * size >> 20} MB, {free * size >> 20} MB of it free for reuse"
    if free * size > _HOLES and free > pages // 2:
        do = "new jobs fill the holes; to give them back to the disk, stop the workers and run VACUUM"
        return Finding("vacuum", False, says, do)
    return Finding("vacuum", True, says)
