"""Writes docs/openapi.json: the OpenAPI document of a server with the built-in contracts that needs tokens.

`make openapi` writes the file; tests/test_tidy.py compares it with the routes.
"""

import json
from pathlib import Path

from detent import Detent
from detent.core.contract.builtin import CONTRACTS
from detent.web.app import create_app
from detent.web.http.settings import Settings
from detent.web.openapi.document import document

PATH = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"


def text() -> str:
    app = create_app(Detent("sqlite:///never-opened.db"), Settings())
    openapi = document(app, CONTRACTS, is_open=False)
    return json.dumps(openapi, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
