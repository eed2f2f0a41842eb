"""What every Python handler calls: counts in a memory-mapped file per process, and the delays of stamped jobs.

It runs in the environments of the peers, so it may import nothing but the standard library.
"""

import mmap
import os
import struct
import threading
import time
from pathlib import Path

LAYOUT = struct.Struct("qdd")
"""(calls, time of the first, time of the last); times are CLOCK_MONOTONIC, which all processes share."""


class _Tally:
    """The mapped file of this process; a forked child creates its own."""

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


def _tally_of_process() -> _Tally:
    global _tally
    if _tally is None or _tally.pid != os.getpid():
        _tally = _Tally()
    return _tally


def handled(jobs: int = 1) -> None:
    """Count handler calls; the raw loops count a batch at a time."""
    now = time.monotonic()
    with _lock:
        tally = _tally_of_process()
        tally.first = tally.first or now
        tally.calls += jobs
        LAYOUT.pack_into(tally.map, 0, tally.calls, tally.first, now)


def picked_up(sent: float) -> None:
    """Record the pickup delay of a stamped job; called when its handler starts."""
    delay = time.monotonic() - sent
    with _lock:
        _tally_of_process().delays.write(f"{sent!r} {delay!r}\n")
