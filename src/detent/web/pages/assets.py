"""The pages' own scripts, styles and pictures, under an address that changes when any of them does."""

from hashlib import blake2b
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response

_FOLDER = Path(__file__).parent.parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES = {
    file.relative_to(_FOLDER).as_posix(): (file.read_bytes(), _KINDS[file.suffix])
    for file in sorted(_FOLDER.rglob("*"))
    if file.suffix in _KINDS
}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


def _digest() -> str:
    mark = blake2b(digest_size=6)
    for name, (body, _) in _FILES.items():
        mark.update(name.encode() + b"\0" + body)
    return mark.hexdigest()


PREFIX = f"/static/{_digest()}"
"""No browser asks for one file twice: other contents have another address."""


def asset(name: str) -> Response:
    """One file from memory; nothing outside the folder can be asked for."""
    if name not in _FILES:
        raise HTTPException(404)
    body, kind = _FILES[name]
    return Response(body, 200, _FOREVER, kind)
