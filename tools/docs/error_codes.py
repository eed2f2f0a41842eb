"""The error codes of the code: every constant that looks like a code, with the HTTP status where a call shows it.

A constant of this shape that is no code is in NOT_CODES. So a new code cannot be forgotten: a test compares this list
with the page of error codes.
"""

import ast
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import detent
from detent.core.errors import DetentError

SOURCE = Path(detent.__file__).parent
CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|INTERNAL|USAGE")
NOT_CODES = re.compile(
    r"DETENT_(?!ERROR).*|TCP_.*|SC_.*|(JOB|DLQ|TOKEN|WORKER|ALERT|SCHEDULE|SUBSCRIPTION|DELIVERY)_ID|GATE_B2|MAX_RETRIES"
    r"|RETRY_BACKOFF_S|CARD_DECLINED|VISIBILITY_TIMEOUT_S|HEARTBEAT_INTERVAL_S"
)
"""Environment variables, socket options, names of arguments, examples."""


def load() -> None:
    """Import every module that declares errors; a class is known when its module is."""
    for module in pkgutil.walk_packages(detent.__path__, "detent."):
        if not re.search(r"__main__|\.django|pytest_plugin", module.name):
            import_module(module.name)


@cache
def codes() -> Mapping[str, int | None]:
    """Code -> its HTTP status; None: it appears in jobs and in the output of commands only."""
    load()
    found: dict[str, int | None] = {}
    classes = {cls.__name__: cls.http_status for cls in _subclasses(DetentError)}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {id(text) for text in _docstrings(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and _is_code(node.value) and id(node) not in docstrings:
                found.setdefault(str(node.value), None)
            elif isinstance(node, ast.Call):
                status = _status(node, classes)
                for keyword in node.keywords:
                    if keyword.arg == "code" and status:
                        found |= dict.fromkeys(_codes_in(keyword.value), status)
    return found | {cls.code: cls.http_status for cls in _subclasses(DetentError)}


def _is_code(value: object) -> bool:
    return isinstance(value, str) and bool(CODE.fullmatch(value)) and not NOT_CODES.fullmatch(value)


def _codes_in(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and _is_code(part.value):
            yield str(part.value)


def _status(call: ast.Call, classes: Mapping[str, int]) -> int | None:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    for keyword in call.keywords:
        if keyword.arg == "http_status" and isinstance(keyword.value, ast.Constant):
            return int(str(keyword.value.value))
    return classes.get(name)


def _subclasses(cls: type[DetentError]) -> Iterator[type[DetentError]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from _subclasses(subclass)


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
