"""Writes the measured parts of the pages performance and scale of docs/: the text between the bench markers."""

import re
from pathlib import Path
from typing import Any

from . import chart, homes
from .contestants import BY_NAME
from .model import cost_of, measured_rates
from .readings import Readings
from .report import STORES, format_number, format_ratio, from_json

PAGES = ("understand/performance.md", "operate/scale.md")
_BLOCK = re.compile(r"(<!-- bench (?P<what>.+?) -->\n)(?P<body>.*?)(<!-- /bench -->)", re.DOTALL)


def write(data: dict[str, Any], drawing: Path) -> int:
    """Write the pages and the chart from the JSON of a run."""
    readings = from_json(data)
    folder = homes.ROOT / "docs"
    for name in PAGES:
        page = folder / name
        page.write_text(filled(page.read_text(), data, readings))
        print(f"wrote docs/{name}")
    for path in (folder / "understand" / "performance.svg", drawing):
        path.write_text(chart.svg(readings))
    return 0


def filled(text: str, data: dict[str, Any], readings: Readings) -> str:
    """Generate each block by its name: `machine`, `goals`, `includes`, `missing`, `model`, `growth …`, or a measure."""

    def generate(match: re.Match[str]) -> str:
        return f"{match[1]}{block(match['what'], data, readings)}\n{match[4]}"

    return _BLOCK.sub(generate, text)


def block(what: str, data: dict[str, Any], readings: Readings) -> str:
    generators = {"machine": _machine, "goals": _goals, "includes": _includes, "missing": _missing, "model": _model}
    if what in generators:
        return generators[what](data, readings)
    if what.startswith("growth"):
        return _growth(what.removeprefix("growth").strip(), readings)
    if what not in readings.measures:
        return f"*Not measured in this run: {what}.*"
    return _table(what, readings)


def _rows(head: list[str], rows: list[list[str]]) -> str:
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, marks, *rows))


def _table(measure: str, readings: Readings) -> str:
    rows = []
    for store, title in STORES.items():
        for name in readings.ranked(measure, store):
            values = readings.measures[measure].values[name]
            spread = f"{format_number(min(values))} – {format_number(max(values))}"
            ratios = [format_ratio(readings.of_raw(measure, name)), format_ratio(readings.detent_ahead(measure, name))]
            label = f"**{name}**" if name.startswith("detent") else name
            rows.append([f"{label} ({title})", format_number(readings.median(measure, name) or 0), spread, *ratios])
    return _rows(
        [f"{measure}, {readings.measures[measure].unit}", "median", "least – most", "of raw", "Detent ahead"], rows
    )


def _machine(data: dict[str, Any], readings: Readings) -> str:
    machine = data["machine"]
    syncs = readings.syncs or [0.0]
    slowest, fastest = format_number(min(syncs)), format_number(max(syncs))
    lines = [
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}; "
        f"{'; '.join(machine['versions'].values())}.",
        f"Taken {data['taken_at'][:10]}: {data['options']['rounds']} rounds, {data['options']['jobs']:,} jobs a drain "
        f"(slow peers fewer). The disk synced {slowest} to {fastest} pages a second.",
    ]
    return "\n".join(lines)


def _goals(data: dict[str, Any], readings: Readings) -> str:
    rows = []
    for goal in data["goals"]:
        bound = f"{'<' if goal['absolute'] else '≥'} {goal['bound']:g}"
        reached = "" if goal["reached"] is None else f"{goal['reached']:.2f}"
        rows.append([goal["says"], bound, reached, {True: "holds", False: "missed", None: "not measured"}[goal["met"]]])
    return _rows(["what must hold", "bound", "reached", ""], rows)


def _includes(data: dict[str, Any], readings: Readings) -> str:
    names = ("settings", "history", "fsync", "handler")
    rows = [[name, *(contestant[column] for column in names)] for name, contestant in data["contestants"].items()]
    return _rows(["contestant", "settings", "history kept", "fsync", "handler calls"], rows).replace("---:", "---")


def _missing(data: dict[str, Any], readings: Readings) -> str:
    lines: list[str] = []
    for missing in data["missing"]:
        measure = f", {missing['measure']}" if missing["measure"] else ""
        lines += [f"- {missing['contestant']}{measure}: {missing['reason']}"]
    return "\n".join(sorted(set(lines)))  # one line, also if it was missing in several rounds


def _growth(kind: str, readings: Readings) -> str:
    """`growth backlog` or `growth history`: one column per size."""
    prefix = f"cost a job, {kind} of "
    measures = [name for name in readings.measures if name.startswith(prefix)]
    if not measures:
        return f"*Not measured in this run: cost as {kind} grows.*"
    names = [name for name in BY_NAME if any(name in readings.measures[measure].values for measure in measures)]
    rows = []
    for contestant in names:
        medians = [readings.median(measure, contestant) for measure in measures]
        rows.append([contestant, *("" if value is None else format_number(value) for value in medians)])
    return _rows([f"µs a job, {kind} of", *(name.removeprefix(prefix) for name in measures)], rows)


def _model(data: dict[str, Any], readings: Readings) -> str:
    """Rates predicted from the cost of one job, next to the measured ones."""
    name, cores = "detent-postgres", data["machine"]["cores"]
    cost = cost_of(readings, name)
    if cost is None:
        return "*Not measured in this run: CPU per job on Postgres.*"
    log_bytes = readings.median("log written a drained job", name) or 0
    rows = []
    for workers, rate in measured_rates(readings, name).items():
        predicted = cost.predicted(workers, cores)
        compared = [format_number(predicted), format_number(rate), f"{rate / predicted:.2f}"]
        rows.append([f"{workers} on this machine", *compared, f"{rate * log_bytes / 1e6:.0f}"])
    for size in (4, 8):
        rate = cost.server_alone(size)
        needed = f"a server of {size} cores and {cost.workers_needed(size):.0f} worker cores elsewhere"
        rows.append([needed, format_number(rate), "not measured", "", f"{rate * log_bytes / 1e6:.0f}"])
    worker, server = cost.worker * 1e6, cost.server * 1e6
    head = f"Draining a job costs {worker:.0f} µs of a worker's core and {server:.0f} µs of the server's.\n\n"
    return head + _rows(["workers", "predicted jobs/s", "measured jobs/s", "measured / predicted", "log, MB/s"], rows)
