"""Static files of the dashboard, held in memory, under a URL prefix that contains a digest of all of them."""

from hashlib import blake2b
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response

_FOLDER = Path(__file__).parent.parent / "static"
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES = {
    file.relative_to(_FOLDER).as_posix(): (file.read_bytes(), _MEDIA_TYPES[file.suffix])
    for file in sorted(_FOLDER.rglob("*"))
    if file.suffix in _MEDIA_TYPES
}
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


def _digest() -> str:
    digest = blake2b(digest_size=6)
    for name, (body, _) in _FILES.items():
        digest.update(name.encode() + b"\0" + body)
    return digest.hexdigest()


PREFIX = f"/static/{_digest()}"
"""Files may be cached for ever: changed contents get another prefix."""


def asset(name: str) -> Response:
    """A file by its path below the static folder; 404 if unknown. Never reads from disk."""
    if name not in _FILES:
        raise HTTPException(404)
    body, media_type = _FILES[name]
    return Response(body, 200, _CACHE_FOREVER, media_type)
