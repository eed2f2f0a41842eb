"""Small faults for source code: comparisons, boolean and arithmetic operators, constants, returns, deleted statements.

A mutant is named by its function and by the text before and after the change, so that its name survives other edits.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

COUNT = 500
MODULES = tuple(
    f"detent.core.{name}" for name in ("decide", "outcome", "retry", "schedule", "limits", "contract.model")
)
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip

_AROUND = 30


@dataclass(frozen=True)
class Mutant:
    """One change. `function`: the qualified name of the outermost function it is in, None outside of functions."""

    module: str
    function: str | None
    before: str
    after: str
    number: int
    """Which of the mutants of the module it is."""
    lines: range
    """The lines of the changed statement; of a compound one those of its head."""

    @property
    def name(self) -> str:
        place = self.module.removeprefix("detent.core.") + (f".{self.function}" if self.function else "")
        before, after = _around_difference(self.before, self.after)
        return f"{place}: `{before}` -> `{after}`"

    def code(self) -> CodeType:
        """The whole module with this change."""
        tree = ast.parse(source(self.module))
        changes = [change for _, change in _sites(tree)]
        changes[self.number]()
        return compile(ast.fix_missing_locations(tree), str(path(self.module)), "exec", dont_inherit=True)


def _around_difference(before: str, after: str) -> tuple[str, str]:
    """Both texts without what is far from their difference."""
    start = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    if after == "pass" or start == 0 or len(before) < 2 * _AROUND:
        return before[: 3 * _AROUND], after[: 3 * _AROUND]
    end = next((n for n, (a, b) in enumerate(zip(before[:start:-1], after[:start:-1], strict=False)) if a != b), 0)
    first = max(0, start - _AROUND)
    return before[first : len(before) - max(0, end - _AROUND)], after[first : len(after) - max(0, end - _AROUND)]


def path(module: str) -> Path:
    """The file of a module of Detent, which is not imported."""
    spec = find_spec("detent")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")


def source(module: str) -> str:
    return path(module).read_text("utf-8")


def mutants_of(module: str) -> Iterator[Mutant]:
    for number, (statement, change) in enumerate(_sites(ast.parse(source(module)))):
        before = _text(statement.node)
        undo = change()
        after = "pass" if statement.deleted else _text(statement.node)
        undo()
        if before != after:
            yield Mutant(module, statement.function, before, after, number, _lines(statement.node))


@cache
def all_mutants() -> tuple[Mutant, ...]:
    return tuple(mutant for module in MODULES for mutant in mutants_of(module))


@cache
def draw(count: int, seed: int = 1) -> list[Mutant]:
    """These many of all mutants. An edit of a module changes the choice among the mutants behind the edit."""
    return sorted(all_mutants(), key=lambda mutant: blake2b(f"{seed} {mutant.name} {mutant.number}".encode()).digest())[
        :count
    ]


def patch(mutant: Mutant) -> bool:
    """Give the live function its changed code, for all that have imported it; False if that is not possible."""
    if mutant.function is None:
        return False
    live = _live_function(mutant)
    changed = _code_of(mutant.code(), mutant.function.split("."))
    if live is None or changed is None or live.__code__.co_freevars != changed.co_freevars:
        return False
    live.__code__ = changed
    return True


@dataclass
class _Statement:
    """Where a change is: the smallest statement or the head of a compound one."""

    node: ast.AST
    function: str | None
    deleted: bool = False


_Change = Callable[[], Callable[[], None]]
"""Makes the change in the tree; returns what undoes it."""
_CONDITIONS = ast.Compare | ast.BoolOp | ast.UnaryOp
"""Conditions that have faults of their own."""


def _sites(tree: ast.Module) -> Iterator[tuple[_Statement, _Change]]:
    yield from _in_body(tree.body, [], None)


def _in_body(body: list[ast.stmt], names: list[str], function: str | None) -> Iterator[tuple[_Statement, _Change]]:
    for index, node in enumerate(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = [*names, node.name]
            is_class = isinstance(node, ast.ClassDef)
            yield from _in_body(node.body, inner, function or (None if is_class else ".".join(inner)))
            continue
        if _is_skipped(node):
            continue
        statement = _Statement(node, function)
        for expression in _expressions(node):
            yield from ((statement, change) for change in _changes(expression))
        if function and _may_be_deleted(node):
            yield _Statement(node, function, deleted=True), _replace(body, index, ast.copy_location(ast.Pass(), node))
        for name in ("body", "orelse", "finalbody"):
            if isinstance(inner_body := getattr(node, name, None), list):
                yield from _in_body(inner_body, names, function)
        for handler in getattr(node, "handlers", []):
            yield from _in_body(handler.body, names, function)


def _is_skipped(node: ast.stmt) -> bool:
    """Imports, docstrings, assertions, messages of errors, and annotations alone."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Raise | ast.Pass):
        return True
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _may_be_deleted(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Yield))


def _expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """The statement itself and the expressions in it, without nested statements, annotations and messages."""
    yield node
    waiting = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt | ast.excepthandler)]
    if isinstance(node, ast.AnnAssign):
        waiting.remove(node.annotation)
    while waiting:
        child = waiting.pop()
        if isinstance(child, ast.JoinedStr):
            continue
        yield child
        waiting += [inner for inner in ast.iter_child_nodes(child) if not isinstance(inner, ast.expr_context)]


def _changes(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _SWAPS:
            yield _replace(node.ops, 0, _SWAPS[type(operator)]())
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _SWAPS:
            yield _set(node, "op", _SWAPS[type(operator)]())
        case ast.Constant(value=bool(value)):
            yield _set(node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield _set(node, "value", value + 1)
        case ast.Constant(value=str(value)) if value and " " not in value:
            yield _set(node, "value", f"XX{value}")
        case ast.UnaryOp(op=ast.Not()):
            yield _set(node, "operand", _negated(node.operand))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, _CONDITIONS):
            yield _set(node, "test", _negated(test))
        case ast.comprehension(ifs=[test]) if not isinstance(test, _CONDITIONS):
            yield _replace(node.ifs, 0, _negated(test))
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield _set(node, "value", ast.copy_location(ast.Constant(None), value))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _set(node: ast.AST, field: str, value: object) -> _Change:
    def change() -> Callable[[], None]:
        before = getattr(node, field)
        setattr(node, field, value)
        return lambda: setattr(node, field, before)

    return change


def _replace(items: list[Any], index: int, value: ast.AST) -> _Change:
    def change() -> Callable[[], None]:
        before, items[index] = items[index], value
        return lambda: items.__setitem__(index, before)

    return change


def _negated(node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _lines(node: ast.AST) -> range:
    head: Any = node
    match node:
        case ast.If() | ast.While():
            head = node.test
        case ast.For():
            head = node.iter
        case ast.Match():
            head = node.subject
    return range(head.lineno, head.end_lineno + 1)


def _text(node: ast.AST) -> str:
    """The statement in one line; of a compound one its head."""
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    if isinstance(node, ast.For):
        return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
    if isinstance(node, ast.Match):
        return f"match {ast.unparse(node.subject)}"
    if isinstance(node, ast.With | ast.Try):
        return type(node).__name__.lower()
    return " ".join(ast.unparse(node).split())


def _live_function(mutant: Mutant) -> FunctionType | None:
    found: object = sys.modules.get(mutant.module)
    for name in (mutant.function or "").split("."):
        found = inspect.getattr_static(found, name, None)
    while not isinstance(found, FunctionType):
        inner = getattr(found, "__wrapped__", None) or getattr(found, "fget", None) or getattr(found, "func", None)
        inner = inner or getattr(found, "__func__", None)
        if inner is None:
            return None
        if clear := getattr(found, "cache_clear", None):
            clear()
        found = inner
    return found


def _code_of(code: CodeType, names: list[str]) -> CodeType | None:
    for name in names:
        inner = [const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name]
        if len(inner) != 1:
            return None
        code = inner[0]
    return code
