"""Pictures drawn from the code: the statuses of each contract, the packages and their imports, the flow of data."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

import detent
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Phase

SOURCE = Path(detent.__file__).parent
COLOURS = {Phase.CLAIMABLE: "#1864ab", Phase.LEASED: "#b35900", Phase.BLOCKED: "#7048b6", Phase.FINAL: "#1c7430"}
COLUMNS = (Phase.CLAIMABLE, Phase.LEASED, Phase.BLOCKED, Phase.FINAL)
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW, TOP = 150, 34, 250, 66, 60


def pictures() -> dict[str, str]:
    """Name -> SVG; the repository has the same files below docs/."""
    drawn = {f"understand/diagrams/{name}.svg": contract_svg(CONTRACTS[name]) for name in CONTRACTS}
    drawn["understand/diagrams/packages.svg"] = packages_svg()
    return drawn | {"understand/diagrams/flow.svg": flow_svg()}


def contract_svg(contract: Contract) -> str:
    """One column per phase; an arrow is labelled with the moves between its two statuses."""
    columns = [list(contract.in_phase(phase)) for phase in COLUMNS]
    height = TOP + ROW * max(map(len, columns)) + 20
    place = {
        status: (30 + COLUMN * column, TOP + ROW * row + (height - TOP - ROW * len(statuses)) // 2)
        for column, statuses in enumerate(columns)
        for row, status in enumerate(statuses)
    }
    moves: dict[tuple[str, str], list[str]] = {}
    for edge in contract.edges:
        if edge.source and edge.move:
            moves.setdefault((edge.source, edge.target), []).append(str(edge.move))
    starts = dict.fromkeys(edge.target for edge in contract.edges if edge.source is None)
    parts = [
        _text(30 + COLUMN * column + BOX_WIDTH / 2, 28, phase, COLOURS[phase], 13)
        for column, phase in enumerate(COLUMNS)
    ]
    parts += [
        _arrow(place[source], place[target], ", ".join(dict.fromkeys(names)))
        for (source, target), names in moves.items()
    ]
    parts += [
        _line(place[status][0] - 24, place[status][1] + BOX_HEIGHT / 2, place[status][0] - 2) for status in starts
    ]
    for phase in COLUMNS:
        parts += [
            _box(*place[status], status, COLOURS[phase], phase is Phase.FINAL) for status in contract.in_phase(phase)
        ]
    return _svg(30 + COLUMN * 3 + BOX_WIDTH + 30, height, f"The statuses of the contract {contract.name}", parts)


def _arrow(source: tuple[int, int], target: tuple[int, int], label: str) -> str:
    (x1, y1), (x2, y2) = source, target
    middle = BOX_HEIGHT / 2
    if x2 > x1:  # to the right
        start, end, bend = (x1 + BOX_WIDTH, y1 + middle), (x2 - 3, y2 + middle), 60.0
    elif x2 < x1:  # back to the left
        start, end, bend = (x1, y1 + middle + 6), (x2 + BOX_WIDTH + 3, y2 + middle + 6), -60.0
    else:
        start, end, bend = (x1 + BOX_WIDTH, y1 + middle), (x2 + BOX_WIDTH + 3, y2 + middle), 40.0
        curve = f"M{start[0]} {start[1]}C{start[0] + bend} {start[1]} {end[0] + bend} {end[1]} {end[0]} {end[1]}"
        return f'<path d="{curve}" class="arrow"><title>{escape(label)}</title></path>'
    curve = f"M{start[0]} {start[1]}C{start[0] + bend} {start[1]} {end[0] - bend} {end[1]} {end[0]} {end[1]}"
    return f'<path d="{curve}" class="arrow"><title>{escape(label)}</title></path>'


def _line(x1: float, y: float, x2: float) -> str:
    return f'<path d="M{x1} {y}L{x2} {y}" class="arrow"><title>created</title></path>'


def _box(
    x: float, y: float, label: str, colour: str, filled: bool = False, width: float = BOX_WIDTH, note: str = ""
) -> str:
    fill, ink = (colour, "#fff") if filled else ("#fff", "#171b22")
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="7" fill="{fill}" stroke="{colour}" stroke-width="1.6"/>'
    title = f"<title>{escape(note)}</title>" if note else ""
    return f"<g>{title}{box}{_text(x + width / 2, y + 22, label, ink, 13)}</g>"


def _text(x: float, y: float, label: str, fill: str, size: int) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" text-anchor="middle">{escape(str(label))}</text>'
    )


def _svg(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="{FONT}">'
    style = "<style>.arrow{fill:none;stroke:#7b8494;stroke-width:1.3;marker-end:url(#tip)}</style>"
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    marker = f'<defs>{tip}<path d="M0 0L8 4L0 8z" fill="#7b8494"/></marker></defs>'
    paper = f'<rect width="{width:g}" height="{height:g}" rx="10" fill="#f6f7f9"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", style, marker, paper, *parts, "</svg>", ""])


def packages_svg() -> str:
    """The folders of the package; a folder stands above everything that it imports."""
    imports = imported_folders()
    levels: dict[str, int] = {}

    def level(folder: str) -> int:
        if folder not in levels:
            levels[folder] = 1 + max((level(other) for other in imports[folder]), default=-1)
        return levels[folder]

    rows: dict[int, list[str]] = {}
    for folder in imports:
        rows.setdefault(level(folder), []).append(folder)
    height = 46 * len(rows) + 20
    parts = []
    for number, folders in sorted(rows.items()):
        width = (760 - 10 * (len(folders) - 1)) / len(folders)
        for position, folder in enumerate(sorted(folders)):
            x, y = 20 + position * (width + 10), height - 46 * (number + 1)
            text = f"{folder}: {_summary(folder)}"
            short = text if len(text) * 7 < width else folder
            parts.append(
                _box(x, y, short, "#2f4fc7", width=width, note=f"{text} Imports: {', '.join(sorted(imports[folder]))}")
            )
    return _svg(800, height, "The packages of Detent, each above those it imports", parts)


@cache
def imported_folders() -> dict[str, set[str]]:
    folders = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
    found: dict[str, set[str]] = {folder: set() for folder in folders}
    for folder in folders:
        for path in (SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                parts = (getattr(node, "module", None) or "").split(".")
                if isinstance(node, ast.ImportFrom) and not node.level and parts[0] == "detent" and len(parts) > 1:
                    found[folder] |= {parts[1]} & (set(folders) - {folder})
    return found


def _summary(folder: str) -> str:
    text = ast.get_docstring(ast.parse((SOURCE / folder / "__init__.py").read_text("utf-8"))) or ""
    return re.split(r"(?<=[.;:])\s", " ".join(text.split()))[0].rstrip(";:")


def flow_svg() -> str:
    """Who writes to the database, and in which order."""
    blue, brown, green, violet = "#2f4fc7", "#b35900", "#1c7430", "#7048b6"
    left = [("your application", 60), ("command line", 120), ("REST and dashboard", 180)]
    parts = [_box(20, y, label, blue, width=170) for label, y in left]
    parts += [_box(290, 120, "engine: decide", blue, True, width=150)]
    parts += [
        f'<rect x="520" y="40" width="190" height="200" rx="10" fill="#fff" stroke="{green}" stroke-width="1.6"/>'
    ]
    parts += [_text(615, 64, "database", green, 14), _box(540, 80, "jobs: one row each", green, width=150)]
    parts += [
        _box(540, 130, "events: the log", green, width=150),
        _box(540, 180, "steps, dead letters", green, width=150),
    ]
    parts += [_box(290, 290, "worker", brown, True, width=150), _box(20, 290, "your handlers", brown, width=170)]
    parts += [_box(520, 290, "sweeper, schedules", violet, width=190)]
    for y in (77, 137, 197):
        parts.append(f'<path d="M190 {y}C240 {y} 240 137 286 137" class="arrow"/>')
    parts.append('<path d="M440 137L516 137" class="arrow"/>')
    parts.append('<path d="M520 200C470 200 400 240 380 286" class="arrow"/>')
    parts.append('<path d="M350 286C350 250 360 200 365 158" class="arrow"/>')
    parts.append('<path d="M290 302L194 302" class="arrow"/><path d="M190 316L286 316" class="arrow"/>')
    parts.append('<path d="M520 307C470 307 430 240 400 158" class="arrow"/>')
    labels = [
        (480, 128, "one commit"),
        (475, 232, "claim"),
        (318, 240, "settle"),
        (240, 296, "run"),
        (240, 332, "steps, result"),
    ]
    parts += [_text(x, y, label, "#525c6b", 12) for x, y, label in labels]
    parts.append(_text(240, 52, "submit, cancel, signal", "#525c6b", 12))
    return _svg(730, 350, "The flow of data in Detent", parts)
