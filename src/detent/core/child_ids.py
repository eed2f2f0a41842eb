"""Children: their ids, so that a handler that runs again meets the children it had, and which ends wake a parent."""

import re
from hashlib import blake2b

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VARIANTS = "89ab"

END, FAILURE, ANY = "end", "failure", "any"
"""What a parent waits for: the end of all, of all or a failure of one, any end."""


def child_id(parent_id: str, name: str) -> str:
    """Always the same for one parent and name: a UUIDv7 with the parent's moment, so that both are old together."""
    drawn = blake2b(f"{parent_id}\0{name}".encode(), digest_size=16).hexdigest()
    moment = parent_id[:8] + parent_id[9:13] if _UUID.fullmatch(parent_id) else drawn[20:32]
    variant = _VARIANTS[int(drawn[3], 16) & 3]
    return f"{moment[:8]}-{moment[8:]}-7{drawn[:3]}-{variant}{drawn[4:7]}-{drawn[7:19]}"


def wakes(wakes_on: str, ended: int, failed: int, left: bool) -> bool:
    """Does a parent go on, now that so many of the awaited ended, so many of these badly, and others are left?"""
    if not left:
        return True
    return ended > 0 if wakes_on == ANY else wakes_on == FAILURE and failed > 0
