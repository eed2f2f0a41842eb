"""What surrounds every page: language, theme, the way to the root, and the headers that let no foreign script in."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response

from detent.version import __version__

from .assets import PREFIX

_HERE = Path(__file__).parent.parent
LANGUAGES = {"en": "English", "zh": "中文"}
THEMES = ("system", "light", "dark")
LANGUAGE_COOKIE, THEME_COOKIE = "detent_language", "detent_theme"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Vary": "Cookie, Accept-Language"}
_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@cache
def words(language: str) -> dict[str, str]:
    """Every sentence of the pages in one language."""
    text = (_HERE / "words" / f"{language}.json").read_text("utf-8")
    found: dict[str, str] = json.loads(text)
    return found


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks, as far as a page's looks go. root: the way from this page to the first one."""

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
    """How many folders below the first page; counted, so that no proxy need tell us its prefix."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return max(0, path.count("/") - 1)


def preferred(accepted: str) -> str:
    """The first language of an Accept-Language header that we speak."""
    wanted: list[tuple[float, str]] = []
    for part in accepted[:500].split(","):
        tag, _, weight = part.strip().partition(";q=")
        try:
            wanted.append((-float(weight or 1), tag.lower().partition("-")[0]))
        except ValueError:
            continue
    return next((tag for _, tag in sorted(wanted, key=lambda one: one[0]) if tag in LANGUAGES), "en")


def render(template: str, viewer: Viewer, status: int, **told: Any) -> Response:
    table = words(viewer.language)
    text = _templates.get_template(template).render(
        viewer=viewer,
        root=viewer.root,
        static=f"{viewer.root}{PREFIX.lstrip('/')}",
        languages=LANGUAGES,
        themes=THEMES,
        version=__version__,
        words=table,
        t=lambda key: table[key],
        **told,
    )
    return HTMLResponse(text, status, _HEADERS)
