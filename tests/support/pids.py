"""Processes that a test knows by their pid only: the children of a process it started."""

from pathlib import Path


def gone(pid: int) -> bool:
    """True if there is no such process, or it is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return True
