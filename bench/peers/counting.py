"""What every Python handler calls: a count in a mapped file per process, and the delays of stamped jobs.

Runs inside the peers' own environments, so it may import nothing but the standard library.
"""

import mmap
import os
import struct
import threading
import time
from pathlib import Path

LAYOUT = struct.Struct("qdd")
"""calls, the moment of the first, the moment of the last; moments are CLOCK_MONOTONIC, shared by all processes."""


class _Tally:
    """The mapped file of this process; after a fork the child makes its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.calls = 0
        self.first = 0.0
        folder = Path(os.environ["BENCH_RUN"])
        descriptor = os.open(folder / f"count.{self.pid}", os.O_CREAT | os.O_RDWR, 0o666)
        os.ftruncate(descriptor, LAYOUT.size)
        self.map = mmap.mmap(descriptor, LAYOUT.size)
        os.close(descriptor)
        self.delays = (folder / f"delays.{self.pid}").open("a", buffering=1)


_lock = threading.Lock()
_tally: _Tally | None = None


def _own() -> _Tally:
    global _tally
    if _tally is None or _tally.pid != os.getpid():
        _tally = _Tally()
    return _tally


def handled(jobs: int = 1) -> None:
    """A handler was called; the raw loops count a batch at a time."""
    now = time.monotonic()
    with _lock:
        tally = _own()
        tally.first = tally.first or now
        tally.calls += jobs
        LAYOUT.pack_into(tally.map, 0, tally.calls, tally.first, now)


def picked_up(sent: float) -> None:
    """A stamped job has started."""
    delay = time.monotonic() - sent
    with _lock:
        _own().delays.write(f"{sent!r} {delay!r}\n")
