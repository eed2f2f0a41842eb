"""The style guide's rules, as pure functions from a source to its findings; test_tidy.py runs them."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# The first name below detent decides the layer; a room not named here is of the engine's.
LAYER_OF = {
    "core": "core",
    "ports": "ports",
    "schedule_port": "ports",
    "pruning_port": "ports",
    "wire": "ports",
    "limit_port": "ports",
    "family_port": "ports",
    "clock": "system",
    "ids": "system",
    "stores": "stores",
    "transports": "transports",
    "app": "assembly",
    "connect": "assembly",
    "dead_letters": "assembly",
    "schedules": "assembly",
    "tenants": "assembly",
    "transactions": "assembly",
    "streams": "assembly",
    "sync_handle": "assembly",
    "workflow": "assembly",
    "__init__": "assembly",
    "proof": "proof",
    "contrib": "contrib",
    "web": "web",
    "cli": "cli",
    "__main__": "cli",
}
_ENGINE = {"core", "ports", "system", "engine"}
_BELOW_WEB = _ENGINE | {"stores", "transports", "assembly", "proof", "contrib"}
MAY_IMPORT = {
    "core": {"core"},
    "ports": {"core", "ports"},
    "system": {"core", "ports", "system"},
    "stores": {"core", "ports", "system", "stores"},
    "transports": {"core", "ports", "system", "transports"},
    "engine": _ENGINE,
    "assembly": _ENGINE | {"stores", "transports", "assembly"},
    "proof": _BELOW_WEB,
    "contrib": _BELOW_WEB,
    "web": _BELOW_WEB | {"web"},
    "cli": _BELOW_WEB | {"web", "cli"},
}
IO = {"aiosqlite", "apsw", "asyncpg", "os", "redis", "socket", "sqlite3", "ssl", "subprocess"}
CONCURRENCY = {"asyncio", "concurrent", "multiprocessing", "selectors", "signal", "threading"}
IMPURE = IO | CONCURRENCY | {"random", "secrets", "time", "uuid"}

SYSTEM_FILES = {"clock.py", "ids.py"}
UNREPEATABLE = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|thread_time)(_ns)?|time\.sleep|os\.(urandom|getrandom)"
    r"|datetime\.datetime\.(now|utcnow|today)|datetime\.date\.today|(random|uuid|secrets)\.\w+"
)
PURE_CALLS = {"uuid.UUID": "parses a value, draws nothing"}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/(?:work|root)/")
_SQL_TOKEN = re.compile(r"'(?P<text>(?:[^']|'')*)'|--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    what: str
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says}"


@dataclass(frozen=True)
class Source:
    """One text file; its path is relative to src/detent (or, for machine paths, to the repository)."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> list[str]:
        """The dotted name below detent, as a list; a package's own module ends in __init__."""
        return list(PurePosixPath(self.path).with_suffix("").parts)

    def finding(self, line: int, what: str, says: str) -> Finding:
        return Finding(self.path, line, what, says)


def check_layers(source: Source, rooms: Collection[str]) -> Iterator[Finding]:
    """`rooms` are the modules and packages directly below detent. TYPE_CHECKING imports count."""
    layer = _layer(source.module[0])
    for line, module in _imports(source.tree, ["detent", *source.module[:-1]]):
        top, _, rest = module.partition(".")
        if top != "detent":
            if layer == "core" and top in IMPURE:
                yield source.finding(line, module, f"core must stay pure and may not import {module}")
            continue
        room = rest.partition(".")[0]
        room = room if room in rooms or room in LAYER_OF else "__init__"
        if _layer(room) not in MAY_IMPORT[layer]:
            allowed = ", ".join(sorted(MAY_IMPORT[layer]))
            yield source.finding(line, module, f"layer {layer} may not import {module} (only: {allowed})")


def check_file_size(source: Source) -> Iterator[Finding]:
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield source.finding(lines, "file", f"{lines} lines, at most {MAX_FILE_LINES}")


def check_function_size(source: Source) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                says = f"{node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"
                yield source.finding(node.lineno, node.name, says)


def check_repeatable(source: Source) -> Iterator[Finding]:
    """Clock and randomness, called or handed on; a class of theirs may be named in an annotation."""
    if source.path in SYSTEM_FILES:
        return
    names = _imported_names(source.tree)
    called = {id(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(source.tree):
        dotted = _dotted(node, names)
        if dotted is None or not UNREPEATABLE.fullmatch(dotted) or dotted in PURE_CALLS:
            continue
        names_a_class = dotted.rpartition(".")[2][0].isupper()
        if id(node) in called or not names_a_class:
            yield source.finding(node.lineno, dotted, f"{dotted} belongs behind clock.py or ids.py")


def check_statuses(source: Source, statuses: Collection[str]) -> Iterator[Finding]:
    """Python constants that are a status, or that quote one as SQL would; in .sql files every quoted one."""
    if source.path.startswith("core/contracts/"):
        return
    if source.path.endswith(".sql"):
        spelled = _quoted_in_sql(source.text, statuses)
    else:
        spelled = _spelled_in_python(source.tree, statuses)
    for line, status in spelled:
        yield source.finding(line, status, f"status {status!r} may be spelled in core/contracts/ only")


def check_finished(source: Source) -> Iterator[Finding]:
    for line, match in _matches(UNFINISHED, source.text):
        yield source.finding(line, match, f"{match} left behind")


def check_machine_paths(source: Source) -> Iterator[Finding]:
    for line, match in _matches(MACHINE_PATH, source.text):
        yield source.finding(line, match, f"names a path of one machine ({match}…)")


def check_docstring(source: Source) -> Iterator[Finding]:
    if not (ast.get_docstring(source.tree) or "").strip():
        yield source.finding(1, "docstring", "no module docstring: what it owns, what it must not do")


def without_allowed(findings: Iterable[Finding], allowed: Mapping[tuple[str, str], str]) -> list[str]:
    """The findings less those allowed by (path, what); an entry that allows nothing is a finding too."""
    kept: list[str] = []
    used: set[tuple[str, str]] = set()
    for finding in findings:
        key = (finding.path, finding.what)
        if allowed.get(key, "").strip():
            used.add(key)
        else:
            kept.append(str(finding))
    unused = sorted(set(allowed) - used)
    return kept + [f"{path}:0: its allow-list entry for {what!r} is not needed" for path, what in unused]


def _layer(room: str) -> str:
    return LAYER_OF.get(room, "engine")


def _imports(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Every module imported, absolute, wherever the import stands; import_module("…") too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield node.lineno, ".".join(package) + name if name.startswith(".") else name


def _imported_names(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.AST, names: Mapping[str, str]) -> str | None:
    """The full name of an imported thing, so that aliases hide nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value, names)):
        return f"{owner}.{node.attr}"
    return None


def _spelled_in_python(tree: ast.Module, statuses: Collection[str]) -> Iterator[tuple[int, str]]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    quoted = re.compile("'(?:" + "|".join(map(re.escape, sorted(statuses))) + ")'")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            if node.value in statuses:
                yield node.lineno, node.value
            else:
                for number, match in _matches(quoted, node.value):
                    yield node.lineno + number - 1, match[1:-1]


def _quoted_in_sql(text: str, statuses: Collection[str]) -> Iterator[tuple[int, str]]:
    for token in _SQL_TOKEN.finditer(text):
        if token["text"] in statuses:
            yield text.count("\n", 0, token.start()) + 1, token["text"]


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, match[0]) for match in pattern.finditer(line))
