"""The rules of the house as pure functions from a source file to its findings; test_tidy.py runs them."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

MAX_CODE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_MODULES = 15
MAX_PROTOCOL_METHODS = 12

# From the bottom to the top. A folder imports from rows above it; folders of one row do not import one another.
LAYERS = (
    ("core",),
    ("ports",),
    ("system",),
    ("stores", "transports"),
    ("engine",),
    ("handler", "observability"),
    ("worker",),
    ("streams",),
    ("client",),
    ("proof", "testing"),
    ("web",),
    ("cli",),
    ("integrations",),
)
ROOT_MODULES = {"__init__": "client", "__main__": "cli", "version": "core"}
"""The only modules beside the folders, and the layer whose imports each of them may use."""
ROOT_FILES = {f"{name}.py" for name in ROOT_MODULES} | {"py.typed"}
STORES_APART = ("engine", "handler", "observability", "worker", "streams")
"""These reach the database and the stream server through `ports` only."""
CONTRACT_FILES = {f"core/contract/{name}.py" for name in ("standard", "formal", "gate_b2", "men", "p3c", "streams")}

IO = {"aiosqlite", "apsw", "asyncpg", "os", "redis", "socket", "sqlite3", "ssl", "subprocess"}
CONCURRENCY = {"asyncio", "concurrent", "multiprocessing", "selectors", "signal", "threading"}
IMPURE = IO | CONCURRENCY | {"random", "secrets", "time", "uuid"}

SYSTEM_FILES = {"system/clock.py", "system/ids.py"}
UNREPEATABLE = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|thread_time)(_ns)?|time\.sleep|os\.(urandom|getrandom)"
    r"|datetime\.datetime\.(now|utcnow|today)|datetime\.date\.today|(random|uuid|secrets)\.\w+"
)
PURE_CALLS = {"uuid.UUID": "parses a value, draws nothing"}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
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


def check_layers(source: Source) -> Iterator[Finding]:
    """Imports against the order of the layers, type-only and function-level ones included."""
    folder = source.module[0]
    layer = ROOT_MODULES.get(folder, folder) if len(source.module) == 1 else folder
    if layer not in _LEVEL:
        yield source.finding(1, folder, f"{folder} is no folder of the house: {', '.join(_LEVEL)}")
        return
    for line, module in _imports(source.tree, ["detent", *source.module[:-1]]):
        top, _, rest = module.partition(".")
        if top != "detent":
            if layer == "core" and top in IMPURE:
                yield source.finding(line, module, f"core must stay pure and may not import {module}")
            continue
        target = rest.partition(".")[0]
        target = target if target in _LEVEL else ROOT_MODULES.get(target, ROOT_MODULES["__init__"])
        apart = layer in STORES_APART and target in ("stores", "transports")
        if target != layer and (_LEVEL[target] >= _LEVEL[layer] or apart):
            yield source.finding(line, module, f"{layer} may not import {module}")


_LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}


def check_root(names: Iterable[str]) -> Iterator[Finding]:
    """`names` of the files and folders directly below src/detent."""
    for name in sorted(names):
        if name not in _LEVEL and name not in ROOT_FILES:
            yield Finding(name, 1, name, f"{name} does not belong directly below src/detent")


def check_folder_sizes(paths: Iterable[str]) -> Iterator[Finding]:
    """`paths` of modules, .py and .js; packages' own __init__.py do not count."""
    folders: dict[str, int] = defaultdict(int)
    for path in map(PurePosixPath, paths):
        folders[str(path.parent)] += path.name != "__init__.py"
    for folder, modules in sorted(folders.items()):
        if modules > MAX_MODULES:
            yield Finding(folder, 1, folder, f"{modules} modules in one folder, at most {MAX_MODULES}")


def check_class_names_once(sources: Iterable[Source]) -> Iterator[Finding]:
    """A public class name stands for one class in a folder."""
    homes: dict[tuple[str, str], str] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                key = str(PurePosixPath(source.path).parent), node.name
                if homes.setdefault(key, source.path) != source.path:
                    yield source.finding(node.lineno, node.name, f"class {node.name} is defined in {homes[key]}, too")


def check_test_helpers(sources: Sequence[Source], product: Collection[str]) -> Iterator[Finding]:
    """`sources` below tests/; `product` are the names of folders of src/detent.

    A folder of tests with such a name holds tests and fixtures only, and is imported by no other folder: a reader would
    take `from engine.clock import` for a module of the product.
    """
    shadowing = {PurePosixPath(source.path).parts[1] for source in sources} & set(product)
    for source in sources:
        *folders, name = PurePosixPath(source.path).parts
        helper = not name.startswith("test_") and name not in ("conftest.py", "__init__.py")
        if helper and folders[1:2] and folders[1] in shadowing:
            yield source.finding(1, name, f"{folders[1]} is a folder of src/detent; helpers belong in tests/support")
        for line, module in _imports(source.tree, folders):
            if module.partition(".")[0] in shadowing:
                yield source.finding(line, module, f"{module} looks like the product; import from support instead")


def check_names(source: Source, banned: Collection[str]) -> Iterator[Finding]:
    """Variables, parameters, attributes and functions that do not say what they hold."""
    for node in ast.walk(source.tree):
        for name in _bound_names(node):
            if name.strip("_") in banned:
                yield source.finding(getattr(node, "lineno", 1), name, f"{name}: name it after what it holds")


def check_vocabulary(source: Source, modules: Collection[str], classes: Collection[str]) -> Iterator[Finding]:
    """A module of one of these names, or a class of one of these."""
    stem = PurePosixPath(source.path).stem
    if stem in modules:
        yield source.finding(1, stem, f"module {stem}: not a word of ours any more, see docs/understand/glossary.md")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_") in classes:
            yield source.finding(node.lineno, node.name, f"class {node.name}: not a word of ours any more")


def check_protocols(sources: Iterable[Source]) -> Iterator[Finding]:
    """Protocols with too many methods, inherited ones included."""
    classes = {
        node.name: (source, node)
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    for name, (source, node) in classes.items():
        bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
        methods = _methods(name, classes)
        if "Protocol" in bases and len(methods) > MAX_PROTOCOL_METHODS:
            text = f"{name} has {len(methods)} methods, inherited ones included, at most {MAX_PROTOCOL_METHODS}"
            yield source.finding(node.lineno, name, text)


def _methods(name: str, classes: Mapping[str, tuple[Source, ast.ClassDef]]) -> set[str]:
    if name not in classes:
        return set()
    node = classes[name][1]
    own = {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    return own.union(*(_methods(ast.unparse(base).partition("[")[0], classes) for base in node.bases))


def check_statements(source: Source) -> Iterator[Finding]:
    """SQL statements are named by stores only; others call typed methods."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="query" | "change"), args=[ast.Constant(value=str()) | ast.JoinedStr(), *_]
            ) if not source.path.startswith("stores/"):
                yield source.finding(node.lineno, ast.unparse(node.args[0]), "only stores name SQL statements")


def _bound_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.alias(asname=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


def check_file_size(source: Source) -> Iterator[Finding]:
    lines = _code_lines(source)
    if lines > MAX_CODE_LINES:
        yield source.finding(1, "file", f"{lines} lines of code, at most {MAX_CODE_LINES}")


def _code_lines(source: Source) -> int:
    """Lines with code on them; blank lines, comments and docstrings do not count."""
    if not source.path.endswith(".py"):
        return sum(
            bool(line.strip()) and not line.lstrip().startswith(("--", "//")) for line in source.text.splitlines()
        )
    docstrings = {
        line
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in ignored:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


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
            yield source.finding(node.lineno, dotted, f"{dotted} belongs to system/clock.py or system/ids.py")


def check_statuses(source: Source, statuses: Collection[str]) -> Iterator[Finding]:
    """Python constants that are a status, or that quote one as SQL would; in .sql files every quoted one."""
    if source.path in CONTRACT_FILES:
        return
    if source.path.endswith(".sql"):
        spelled = _quoted_in_sql(source.text, statuses)
    else:
        spelled = _spelled_in_python(source.tree, statuses)
    for line, status in spelled:
        yield source.finding(line, status, f"status {status!r} may be spelled in the contracts' own files only")


def check_finished(source: Source) -> Iterator[Finding]:
    """Marks of unfinished work; NotImplementedError is for abstract methods."""
    for line, match in _matches(UNFINISHED, source.text):
        yield source.finding(line, match, f"{match} left behind")
    if source.path.endswith(".py"):
        abstract = {id(part) for node in ast.walk(source.tree) if _is_abstract(node) for part in ast.walk(node)}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name) and node.id == "NotImplementedError" and id(node) not in abstract:
                yield source.finding(node.lineno, node.id, f"{node.id} outside an abstract method")


def _is_abstract(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return any(ast.unparse(decorator).endswith("abstractmethod") for decorator in node.decorator_list)


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
    return kept + [f"{path}:0: the allow-list entry for {what!r} is not needed" for path, what in unused]


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
