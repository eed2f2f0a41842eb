"""Deterministic ids of child jobs, so that a repeated handler finds its children; and when a parent is woken."""

import re
from hashlib import blake2b

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VARIANTS = "89ab"

END, FAILURE, ANY = "end", "failure", "any"
"""When a waiting parent wakes: all children ended; all ended or one failed; any child ended."""


def child_id(parent_id: str, name: str) -> str:
    """The same id for the same parent and name: a UUIDv7 with the parent's timestamp, so that both sort together."""
    digest = blake2b(f"{parent_id}\0{name}".encode(), digest_size=16).hexdigest()
    timestamp = parent_id[:8] + parent_id[9:13] if _UUID.fullmatch(parent_id) else digest[20:32]
    variant = _VARIANTS[int(digest[3], 16) & 3]
    return f"{timestamp[:8]}-{timestamp[8:]}-7{digest[:3]}-{variant}{digest[4:7]}-{digest[7:19]}"


def should_wake(wakes_on: str, ended: int, failed: int, left: bool) -> bool:
    """True if the parent wakes. ended, failed: counts among the awaited children; left: some have not ended."""
    if not left:
        return True
    return ended > 0 if wakes_on == ANY else wakes_on == FAILURE and failed > 0
