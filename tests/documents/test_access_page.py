"""docs/operate/access.md lists the least role for each operation, as the application declares it."""

from pathlib import Path

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.stores.sqlite.store import SqliteStore
from detent.web.app import create_app
from detent.web.http.route import PREFIX
from detent.web.http.settings import Settings
from detent.web.openapi.document import document
from detent.web.openapi.schemas import ROLES

PAGES = [Path(__file__).parents[2] / "docs" / "operate" / name for name in ("access.md", "access.zh-CN.md")]


def test_the_page_lists_the_least_role_of_each_operation(tmp_path: Path) -> None:
    app = create_app(Engine(SqliteStore(str(tmp_path / "x.db")), CONTRACTS), Settings(internal=True))
    lines = ["| operation | least role |", "|---|---|"]
    for path, methods in document(app, CONTRACTS, is_open=False)["paths"].items():
        for method, operation in methods.items():
            roles = " or ".join(operation[ROLES]) or "no token"
            lines.append(f"| `{method.upper()} {path.removeprefix(PREFIX)}` | {roles} |")
    for page in PAGES:
        text = page.read_text("utf-8")
        table = text.partition("<!-- operations -->\n")[2].partition("<!-- end of operations -->")[0].strip()
        assert table == "\n".join(lines), f"replace the table in docs/operate/{page.name} by:\n" + "\n".join(lines)
