"""The page of the Python API: the names of `detent` and `detent.testing`, from signatures and docstrings."""

import ast
import enum
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import detent
from detent import testing

from .markdown import WARNING, sentence

INTRODUCTION = f"""{WARNING}
# Python API

Every name that `import detent` offers, with its docstring. `help(name)` shows the same in a Python shell. Signatures have type
hints; your editor and mypy read them, because the package is marked as typed.
"""
GROUPS = {
    "The application": ("Detent", "JobDefinition", "Handle", "Workflow"),
    "In a handler": ("Context", "SyncContext", "Child", "Decision"),
    "How an execution ends": ("Retry", "Fail", "Snooze", "Cancel", "Exponential", "Fixed", "EndedExecution"),
    "Errors": [
        "DetentError",
        "JobFailed",
        "ChildFailed",
        "ApprovalExpired",
        "WaitTimeout",
        "SoftTimeout",
        "CancelRequested",
        "StaleLease",
        "StepMismatch",
        "StepOrphaned",
        "OnceUnfinished",
        "WorkflowInvalid",
    ],
    "Approval rules": ("ApprovalPolicy", "ApprovalRule"),
    "Contracts": [
        "Contract",
        "Edge",
        "Move",
        "Phase",
        "STANDARD",
        "GATE_B2",
        "MEN",
        "P3C",
        "STREAMS",
        "FORMAL",
        "derive_status",
        "replay",
    ],
}
_FIELD = re.compile(r"^(\w+(?:, \w+)*): (.*)$")


def page() -> str:
    grouped = {name for names in GROUPS.values() for name in names}
    rest = [name for name in detent.__all__ if name not in grouped and name != "__version__"]
    parts = [INTRODUCTION]
    for title, names in {**GROUPS, "Other names": rest}.items():
        parts += [f"## {title}\n", *(_entry(name, getattr(detent, name)) for name in names)] if names else []
    parts.append(
        f"## Version\n\n`detent.__version__` is the version of the package, a string like `{detent.__version__}`.\n"
    )
    parts.append("## detent.testing\n\n" + prose(inspect.getdoc(testing) or "") + "\n")
    for module in pkgutil.iter_modules(testing.__path__):
        parts += [_entry(name, thing) for name, thing in _of_tests(f"detent.testing.{module.name}")]
    return "\n".join(parts)


def _of_tests(module: str) -> Iterator[tuple[str, Any]]:
    """The names of a module of tools for tests that the documentation of `detent.testing` mentions."""
    for name, thing in vars(importlib.import_module(module)).items():
        if getattr(thing, "__module__", "") == module and re.search(rf"`{name}`", testing.__doc__ or ""):
            yield name, thing


def _entry(name: str, thing: Any) -> str:
    if isinstance(thing, type):
        return _class(name, thing)
    if callable(thing):
        return f"### {name}\n\n{_signature(name, thing)}\n\n{prose(inspect.getdoc(thing) or '')}\n"
    assert isinstance(thing, detent.Contract), name
    return f"### {name}\n\nThe contract `{thing.name}`: see [Contracts](../understand/contracts.md#{thing.name}).\n"


def _class(name: str, cls: type) -> str:
    bases = [base.__name__ for base in cls.__mro__[1:-1] if not base.__name__.startswith("_")]
    parts = [f"### {name}", _signature(name, cls)] if not issubclass(cls, enum.Enum) else [f"### {name}"]
    if issubclass(cls, BaseException):
        parts.append(f"An exception ({' → '.join(bases)}).")
    parts.append(prose(inspect.getdoc(cls) or ""))
    initialiser = vars(cls).get("__init__")
    if initialiser is not None and initialiser.__doc__:
        parts.append(prose(inspect.getdoc(initialiser) or ""))
    if issubclass(cls, enum.Enum):
        parts.append(", ".join(f"`{member.name}`" for member in cls) + ".")
    fields = [f"- **`{field}`**: {sentence(text)}" for field, text in _attributes(cls).items()]
    parts += ["\n".join(fields)] if fields else []
    parts += [_method(name, *member) for member in _members(cls)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of the class and of its bases in Detent, in the order of the source."""
    seen = set[str]()
    for base in cls.__mro__:
        if not base.__module__.startswith("detent"):
            continue
        for name, value in vars(base).items():
            documented = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if documented and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


def _method(owner: str, name: str, value: Any) -> str:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    text = prose(inspect.getdoc(function) or "")
    if isinstance(value, property):
        return f"#### {owner}.{name}\n\n{text}"
    return f"#### {owner}.{name}\n\n{_signature(name, function)}\n\n{text}"


def _signature(name: str, thing: Any) -> str:
    """The call in a code block, one line if it fits, else one line per parameter."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    rows = [
        row.replace(annotation=_short(row.annotation)) for row in signature.parameters.values() if row.name != "self"
    ]
    result = _short(signature.return_annotation)
    call = f"{name}{signature.replace(parameters=rows, return_annotation=result)}".replace("'", "")
    prefix = "await " if inspect.iscoroutinefunction(thing) else ""
    if len(prefix + call) > 100:
        inside = ",\n".join(f"    {row}".replace("'", "") for row in _with_marks(rows))
        arrow = f" -> {result}" if isinstance(result, str) else ""
        call = f"{name}(\n{inside},\n){arrow}"
    return f"```{{.python .no-copy}}\n{prefix}{call}\n```"


def _with_marks(rows: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for row in rows:
        starred = starred or row.kind is row.VAR_POSITIONAL
        if row.kind is row.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield str(row)


def _short(annotation: Any) -> Any:
    """An annotation without module names, as a string that `str(signature)` puts in quotes."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text.replace("'", "").replace('"', ""))


def _attributes(cls: type) -> dict[str, str]:
    """Attributes that are followed by a docstring, of the class and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("detent"):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(tree, ast.ClassDef)
            for field, text in zip(tree.body, tree.body[1:], strict=False):
                name = getattr(getattr(field, "target", None), "id", "_")
                if isinstance(field, ast.AnnAssign) and _is_text(text) and not name.startswith("_"):
                    found[name] = ast.literal_eval(text.value)  # type: ignore[attr-defined]
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def prose(docstring: str) -> str:
    """A docstring as Markdown: indented lines are code; lines `name: text` become a list."""
    blocks = re.split(r"\n\s*\n", docstring.strip())
    return "\n\n".join(_block(block) for block in _joined(blocks))


def _joined(blocks: list[str]) -> Iterator[str]:
    """Indented blocks that follow one another are one code block."""
    code: list[str] = []
    for block in blocks:
        if block.startswith("    ") or (code and block.startswith(" ")):
            code.append(block)
            continue
        if code:
            yield "\n\n".join(code)
            code = []
        yield block
    if code:
        yield "\n\n".join(code)


def _block(block: str) -> str:
    if block.startswith("    "):
        return f"```python\n{textwrap.dedent(block)}\n```"
    lines = block.split("\n")
    if not _FIELD.match(lines[0]):
        return _escaped(block)
    items: list[str] = []
    for line in lines:
        if (match := _FIELD.match(line)) and not line.startswith(" "):
            items.append(f"- **{match[1]}**: {_escaped(match[2])}")
        else:
            items.append(f"    {_escaped(line.strip())}")
    return "\n".join(items)


def _escaped(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text)
