"""Rendering of pages: templates, language, theme, relative URLs, and the Content-Security-Policy."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response

from detent.proof.verify.rules import RULES
from detent.version import __version__

from .assets import PREFIX

_WEB = Path(__file__).parent.parent
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
