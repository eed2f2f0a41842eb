"""Rendering of pages: templates, language, theme, relative URLs, and the Content-Security-Policy; and static files.

Static files are held in memory, under a URL prefix that contains a digest of all of them.
"""

import json
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response

from detent.proof.verify.rules import RULES
from detent.version import __version__

_WEB = Path(__file__).parent.parent
_FOLDER = _WEB / "static"
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES = {
    file.relative_to(_FOLDER).as_posix(): (file.read_bytes(), _MEDIA_TYPES[file.suffix])
    for file in sorted(_FOLDER.rglob("*"))
    if file.suffix in _MEDIA_TYPES
}
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
LANGUAGES = {"en": "English", "zh": "中文"}
THEMES = ("system", "light", "dark")
LANGUAGE_COOKIE, THEME_COOKIE = "detent_language", "detent_theme"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Vary": "Cookie, Accept-Language"}
templates = Environment(
    loader=FileSystemLoader(_WEB / "templates"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _digest() -> str:
    digest = blake2b(digest_size=6)
    for name, (body, _) in _FILES.items():
        digest.update(name.encode() + b"\0" + body)
    return digest.hexdigest()


PREFIX = f"/static/{_digest()}"
"""Files may be cached for ever: changed contents get another prefix."""


@cache
def words(language: str) -> dict[str, str]:
    """All texts of the dashboard in one language, by key. The English texts of verify's rules are those of `RULES`."""
    texts: dict[str, str] = json.loads((_WEB / "words" / f"{language}.json").read_text("utf-8"))
    return {f"rule.{name}": text for name, text in RULES.items()} | texts


@dataclass(frozen=True, slots=True)
class Viewer:
    """Language and theme of the browser, and `root`: the relative URL from this page to the first page."""

    language: str
    theme: str
    root: str


def viewer_of(request: HTTPConnection) -> Viewer:
    language = request.cookies.get(LANGUAGE_COOKIE, "")
    if language not in LANGUAGES:
        language = preferred(request.headers.get("accept-language", ""))
    theme = request.cookies.get(THEME_COOKIE, "")
    return Viewer(language, theme if theme in THEMES else THEMES[0], "../" * depth_of(request) or "./")


def depth_of(request: HTTPConnection) -> int:
    """How many folders below the first page. Counted from the path, so that a proxy need not pass on its prefix."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return max(0, path.count("/") - 1)


def preferred(accepted: str) -> str:
    """The first supported language of an Accept-Language header; English if there is none."""
    languages: list[tuple[float, str]] = []
    for part in accepted[:500].split(","):
        tag, _, weight = part.strip().partition(";q=")
        try:
            languages.append((-float(weight or 1), tag.lower().partition("-")[0]))
        except ValueError:
            continue
    return next((tag for _, tag in sorted(languages, key=lambda entry: entry[0]) if tag in LANGUAGES), "en")


def render(template: str, viewer: Viewer, status: int, **context: Any) -> Response:
    """A page from a template; `context` is passed to it in addition to what every page needs."""
    texts = words(viewer.language)
    text = templates.get_template(template).render(
        viewer=viewer,
        root=viewer.root,
        static=f"{viewer.root}{PREFIX.lstrip('/')}",
        languages=LANGUAGES,
        themes=THEMES,
        version=__version__,
        words=texts,
        t=lambda key: texts[key],
        **context,
    )
    return HTMLResponse(text, status, _HEADERS)


def asset(name: str) -> Response:
    """A file by its path below the static folder; 404 if unknown. Never reads from disk."""
    if name not in _FILES:
        raise HTTPException(404)
    body, media_type = _FILES[name]
    return Response(body, 200, _CACHE_FOREVER, media_type)
