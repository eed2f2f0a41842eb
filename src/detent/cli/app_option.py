"""The `--app` option of commands that work without an application but check payloads when they have one."""

from typing import TYPE_CHECKING, Annotated

from .loader import load_app
from .options import option

if TYPE_CHECKING:
    from detent.client.app import Detent

App = Annotated[
    str | None, option("--app", "Your application, as module:app or file.py; its handlers validate the payload.")
]


def load_optional_app(spec: str | None) -> "Detent | None":
    return load_app(spec) if spec else None


def url_or_app_url(url: str | None, app: "Detent | None") -> str | None:
    """The URL from the command line, else the application's."""
    return url or (app.url if app else None)
