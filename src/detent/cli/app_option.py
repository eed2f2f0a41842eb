"""Commands that need no application, and check more when they are given one: `--app` or $DETENT_APP."""

from typing import TYPE_CHECKING, Annotated

from .loader import load_app
from .options import option

if TYPE_CHECKING:
    from detent.client.app import Detent

App = Annotated[str | None, option("--app", "Your application: its handlers check the payload. module:app or file.py.")]


def application(spec: str | None) -> "Detent | None":
    return load_app(spec) if spec else None


def url_of(url: str | None, known: "Detent | None") -> str | None:
    """The database that was named, else the application's."""
    return url or (known.url if known else None)
