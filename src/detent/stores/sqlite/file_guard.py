"""Keeps an open SQLite file safe from other openings in the same process, and notices when it is removed or replaced.

SQLite locks a file with POSIX locks. They belong to the process, and the kernel drops all of them when the process
closes any file descriptor of that file. A second SQLite library (the `sqlite3` module beside apsw), or a plain `open()`
and `close()`, therefore unlocks the file under Detent: the other library deletes the write-ahead log as if it were the
last user, and later commits go into a file that has no name any more.
"""

import ctypes
import os
import sys
import threading
from collections import Counter
from typing import Any
from urllib.parse import unquote

import apsw

from detent.core.errors import DatabaseFileLost, SqliteFileInUse

Identity = tuple[int, int]
"""Device and inode: the file itself, whichever path leads to it."""

_DESCRIPTORS = "/proc/self/fd"
_STATX_SIZE, _STATX_INO, _AT_FDCWD = 256, 0x100, -100
_INODE, _DEVICE = slice(32, 40), slice(136, 144)
"""Where struct statx has them."""
_guarded: dict[Identity, list[str]] = {}
"""The files that Detent has open in this process, with one path for each time they were opened."""
_own_paths: Counter[str] = Counter()
"""Real paths of the files that Detent has open, or is opening, in this process."""
_reported_logs: Counter[object] = Counter()
"""The -wal files that this process opens to report its commits, see file_watch.py."""
_lock = threading.Lock()
_hook_installed = False


class FileGuard:
    """One open database file. Register it before the first connection is opened, and close it after the last one."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.wal = f"{self.path}-wal"
        self._encoded_wal = os.fsencode(self.wal)
        self._statx: Any = getattr(ctypes.CDLL(None), "statx", None)
        self._answer = ctypes.create_string_buffer(_STATX_SIZE)
        self._opened: list[object] = []
        self._registered: list[Identity] = []
        self._real_path = os.path.realpath(path)
        with _lock:
            if not _own_paths[self._real_path] and not self._is_open_through_apsw():
                self._refuse_descriptors_of_others()
            _own_paths[self._real_path] += 1
        _install_hook()

    def opened(self) -> None:
        """Call when the connections are open and the write-ahead log exists: from now on the files are guarded."""
        self._opened = self._current()
        with _lock:
            _reported_logs[self.wal] += 1
            for path in (self.path, f"{self.path}-shm"):
                identity = _identity(path)
                _guarded.setdefault(identity, []).append(self.path)
                self._registered.append(identity)

    def check(self) -> None:
        """Call after a commit and before it is acknowledged: raises if the file on disk is not the one that is open."""
        if self._current() != self._opened:
            raise DatabaseFileLost(
                f"{self.path} (or its -wal file) was removed or replaced while Detent had it open, so the last commit"
                " is not in it. Stop every process that uses the file, put the right file in place, and start again",
                path=self.path,
            )

    def _current(self) -> list[object]:
        """Devices and inodes of the file and of its log; shorter if one of them is missing.

        The log's times are not read. After that, as by `os.stat`, Linux (since 6.13) records the exact time of the next
        write, and the sync of the next commit takes a third longer.
        """
        try:
            file = os.stat(self.path)
            if self._statx is None:  # another system than Linux
                return [file.st_dev, file.st_ino, _identity(self.wal)]
        except OSError:
            return []
        if self._statx(_AT_FDCWD, self._encoded_wal, 0, _STATX_INO, self._answer):
            return []
        return [file.st_dev, file.st_ino, self._answer[_INODE], self._answer[_DEVICE]]

    def close(self) -> None:
        with _lock:
            _own_paths[self._real_path] -= 1
            _reported_logs[self.wal] -= bool(self._registered)
            for identity in self._registered:
                _guarded[identity].remove(self.path)
                if not _guarded[identity]:
                    del _guarded[identity]
        self._registered.clear()

    def _is_open_through_apsw(self) -> bool:
        """Connections of our own SQLite library share their locks and are no danger."""
        names = (connection.filename for connection in apsw.connections())
        # A database in memory has no name, and realpath("") fails in a working directory that was removed.
        return any(os.path.realpath(name) == self._real_path for name in names if name)

    def _refuse_descriptors_of_others(self) -> None:
        """A library that opened the file before Detent would release the locks when it closes the file."""
        try:
            wanted = _identity(self.path)
            descriptors = os.listdir(_DESCRIPTORS)
        except OSError:  # a new file, or a system without /proc
            return
        for descriptor in descriptors:
            try:
                status = os.stat(f"{_DESCRIPTORS}/{descriptor}")
            except OSError:
                continue
            if (status.st_dev, status.st_ino) == wanted:
                raise _in_use(self.path, "is already open in this process through another library")


def _identity(path: str) -> Identity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _install_hook() -> None:
    global _hook_installed
    with _lock:
        if not _hook_installed:
            sys.addaudithook(_refuse_second_opening)
            _hook_installed = True


def _refuse_second_opening(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: `open` covers open(), os.open() and shutil; `sqlite3.connect` every library on the sqlite3 module."""
    if not _guarded or event not in ("open", "sqlite3.connect"):
        return
    path = arguments[0]
    if event == "sqlite3.connect":
        path = _path_of_uri(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else path
    if not isinstance(path, str | bytes | os.PathLike) or _reported_logs[path]:
        return  # a file descriptor, or the report of a commit
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    if (status.st_dev, status.st_ino) in _guarded:
        raise _in_use(os.fsdecode(path), "is open in this process by Detent")


def _path_of_uri(database: str) -> str:
    if not database.startswith("file:"):
        return database
    return unquote(database.removeprefix("file:").removeprefix("//localhost").partition("?")[0])


def _in_use(path: str, problem: str) -> SqliteFileInUse:
    return SqliteFileInUse(
        f"{path} {problem}. A second SQLite library in one process, or open() and close(), releases the locks of the"
        " first one, and jobs would be lost. For your own tables use `async with app.connection()`, or another file;"
        " copy or inspect the file from another process",
        path=path,
    )
