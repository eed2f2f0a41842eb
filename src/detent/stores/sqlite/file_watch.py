"""Waits for commits: those of this process are reported by its writer, those of other processes are looked for.

A process reports a commit to the others by opening the -wal file, which the kernel passes on (inotify). SQLite locks
other files, so closing it drops no lock; and it changes nothing, while new times of the file would have to be written
with the next commit. Commits of other programs, and all commits where the kernel cannot do that, are seen by polling
`PRAGMA data_version`.
"""

import asyncio
import ctypes
import os
from collections import Counter
from collections.abc import Callable
from typing import Protocol

_POLL_SECONDS = 0.005
"""How often an idle process reads `PRAGMA data_version` to see commits of other processes; it costs microseconds."""
_IN_OPEN = 0x20
"""inotify reports that the file was opened, and not the writes, which come before the commit can be seen."""


class WatchedStore(Protocol):
    def version(self) -> tuple[int, int]:
        """Changes with every commit."""
        ...

    async def wait_for_commit(self, seconds: float) -> None:
        """Sleep until a commit is reported, at most this long."""
        ...


class FileWatch:
    """Sees commits of this process at once, and those of other processes by polling `PRAGMA data_version`."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store
        self._seen = store.version()

    async def changed(self, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while True:
            version = self._store.version()
            if version != self._seen:
                self._seen = version
                return True
            left = end - loop.time()
            if left <= 0:
                return False
            await self._store.wait_for_commit(min(_POLL_SECONDS, left))


class CommitReports:
    """Calls back when a process on this machine opens the -wal file. Does nothing if the kernel has no inotify."""

    def __init__(self, wal: str, reported: Callable[[], None]) -> None:
        self._descriptor = _inotify_descriptor(wal)
        self._reported = reported
        self._users: Counter[asyncio.AbstractEventLoop] = Counter()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call back on this loop until `end` is called as often as `begin`."""
        if self._descriptor is None:
            return
        if not self._users[loop]:
            loop.add_reader(self._descriptor, self._read)
        self._users[loop] += 1

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._users[loop] > 1:
            self._users[loop] -= 1
        elif self._users.pop(loop, 0) and self._descriptor is not None:
            loop.remove_reader(self._descriptor)

    def _read(self) -> None:
        assert self._descriptor is not None, "close removes the readers"
        try:
            os.read(self._descriptor, 4_096)
        except BlockingIOError:  # it was read on another loop, whose callback wakes all
            return
        self._reported()

    def close(self) -> None:
        if self._descriptor is None:
            return
        for loop in self._users:
            if not loop.is_closed():
                loop.remove_reader(self._descriptor)
        self._users.clear()
        os.close(self._descriptor)
        self._descriptor = None


def _inotify_descriptor(path: str) -> int | None:
    """A descriptor that can be read each time the file was opened; None if the kernel does not offer that."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), ctypes.c_uint32(_IN_OPEN)) < 0:
        os.close(descriptor)
        return None
    return descriptor
