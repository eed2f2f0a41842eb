"""A disk for SQLite that loses power: unsynced writes are dropped, torn, garbled or kept, in any combination.

A file that was never synced may be missing afterwards, and a deleted one may be back. What stands beside a write in its
sector is not damaged: SQLite is told so, as on a real file system (SQLITE_IOCAP_POWERSAFE_OVERWRITE).
"""

from dataclasses import dataclass, field
from random import Random

import apsw

SECTOR = 512
GARBLED = 0.02
"""The share of the sectors that were being written and contain neither the old nor the new bytes."""
_NAMES = iter(range(10**9))


@dataclass(slots=True)
class _Write:
    offset: int
    data: bytes | None
    """None: the file was cut to `offset` bytes."""


@dataclass(slots=True)
class _Content:
    """The bytes that the program sees, the durable ones, and the writes between the two."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write] = field(default_factory=list)
    synced: bool = False
    """True: its name is durable too."""

    def sync(self) -> None:
        self.durable = bytearray(self.seen)
        self.pending.clear()
        self.synced = True

    def after_loss(self, random: Random) -> bytearray:
        """The durable bytes and a random part of the pending writes, in random order, sector by sector."""
        content = bytearray(self.durable)
        pending = list(self.pending)
        if random.random() < 0.5:
            random.shuffle(pending)
        share = random.choice((0.0, 0.3, 0.7, 1.0))
        for write in pending:
            if write.data is None:
                if random.random() < share:
                    del content[write.offset :]
                continue
            for start in range(0, len(write.data), SECTOR):
                if random.random() < share:
                    data = write.data[start : start + SECTOR]
                    is_garbled = random.random() < GARBLED
                    _put(content, write.offset + start, random.randbytes(len(data)) if is_garbled else data)
        return content


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk(apsw.VFS):
    """Files in memory. After `writes_left` writes or syncs the power is lost, and `survivors` is what a new start sees.

    The program does not notice it: whatever it writes from then on is in no file. files: the content at the beginning.
    """

    def __init__(self, random: Random, writes_left: int, files: dict[str, bytes] | None = None) -> None:
        self.vfs = f"detent-disk-{next(_NAMES)}"
        super().__init__(self.vfs, "")
        self.random = random
        self.writes_left = writes_left
        self.files = {
            name: _Content(bytearray(data), bytearray(data), synced=True) for name, data in (files or {}).items()
        }
        self._deleted: dict[str, _Content] = {}
        """Deleted files whose directory was not synced."""
        self.survivors: dict[str, bytes] | None = None
        self.syncs = 0

    @property
    def lost_power(self) -> bool:
        return self.survivors is not None

    def count_write(self) -> None:
        """Called before each write and each sync takes effect."""
        self.writes_left -= 1
        if self.writes_left < 0 and self.survivors is None:
            files = {**self._uncertain(self._deleted), **self.files}
            files = {name: file for name, file in files.items() if file.synced or self.random.random() < 0.5}
            self.survivors = {name: bytes(file.after_loss(self.random)) for name, file in files.items()}

    def _uncertain(self, files: dict[str, _Content]) -> dict[str, _Content]:
        return {name: file for name, file in files.items() if self.random.random() < 0.5}

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "DiskFile":
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        return DiskFile(self, self.files.setdefault(filename or "temporary", _Content()))

    def xAccess(self, pathname: str, flags: int) -> bool:
        return pathname in self.files

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.count_write()
        file = self.files.pop(filename, None)
        if syncdir:
            self._deleted.clear()
        elif file is not None:
            self._deleted[filename] = file

    def xFullPathname(self, name: str) -> str:
        return name


class DiskFile:
    """One open file. There is one process, so locks are always granted."""

    def __init__(self, disk: Disk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._content.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.count_write()
        self._content.pending.append(_Write(offset, bytes(data)))
        _put(self._content.seen, offset, data)

    def xTruncate(self, newsize: int) -> None:
        self._disk.count_write()
        self._content.pending.append(_Write(newsize, None))
        del self._content.seen[newsize:]

    def xSync(self, flags: int) -> None:
        self._disk.count_write()
        self._disk.syncs += 1
        self._content.sync()

    def xFileSize(self) -> int:
        return len(self._content.seen)

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def xLock(self, level: int) -> None: ...

    def xUnlock(self, level: int) -> None: ...

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xClose(self) -> None: ...
