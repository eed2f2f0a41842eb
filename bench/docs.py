"""Writes the measured parts of docs/performance.md and docs/scale.md: what stands between the marks, nothing else."""

import re
from pathlib import Path
from typing import Any

from . import chart, homes
from .contestants import BY_NAME
from .model import cost_of, measured
from .readings import Readings
from .report import STORES, from_json, number, times

PAGES = ("performance.md", "scale.md")
_BLOCK = re.compile(r"(<!-- bench (?P<what>.+?) -->\n)(?P<body>.*?)(<!-- /bench -->)", re.DOTALL)


def write(data: dict[str, Any], drawing: Path) -> int:
    """Fill the pages from one run's JSON; also the chart beside them."""
    readings = from_json(data)
    folder = homes.ROOT / "docs"
    for name in PAGES:
        page = folder / name
        page.write_text(filled(page.read_text(), data, readings))
        print(f"wrote docs/{name}")
    for place in (folder / "performance.svg", drawing):
        place.write_text(chart.svg(readings))
    return 0


def filled(text: str, data: dict[str, Any], readings: Readings) -> str:
    """Each block is made anew from its name: `machine`, `goals`, `includes`, `missing`, `model`, or a measure."""

    def made(found: re.Match[str]) -> str:
        return f"{found[1]}{block(found['what'], data, readings)}\n{found[4]}"

    return _BLOCK.sub(made, text)


def block(what: str, data: dict[str, Any], readings: Readings) -> str:
    makers = {"machine": _machine, "goals": _goals, "includes": _includes, "missing": _missing, "model": _model}
    if what in makers:
        return makers[what](data, readings)
    if what.startswith("growth"):
        return _growth(what.removeprefix("growth").strip(), readings)
    if what not in readings.measures:
        return f"*Not measured in this run: {what}.*"
    return _table(what, readings)


def _rows(head: list[str], rows: list[list[str]]) -> str:
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, marks, *rows))


def _table(measure: str, readings: Readings) -> str:
    kept = readings.measures[measure]
    rows = []
    for store, title in STORES.items():
        for who in readings.ranked(measure, store):
            values = kept.values[who]
            spread = f"{number(min(values))} – {number(max(values))}"
            ratios = [times(readings.of_raw(measure, who)), times(readings.detent_ahead(measure, who))]
            shown = f"**{who}**" if who.startswith("detent") else who
            rows.append([f"{shown} ({title})", number(readings.median(measure, who) or 0), spread, *ratios])
    return _rows([f"{measure}, {kept.unit}", "median", "least – most", "of raw", "Detent ahead"], rows)


def _machine(data: dict[str, Any], readings: Readings) -> str:
    told = data["machine"]
    syncs = readings.syncs or [0.0]
    lines = [
        f"{told['cores']} cores, {told['memory_gib']} GiB, {told['system']}, Python {told['python']}; "
        f"{'; '.join(told['versions'].values())}.",
        f"Taken {data['taken_at'][:10]}: {data['options']['rounds']} rounds, {data['options']['jobs']:,} jobs a drain "
        f"(slow peers fewer). The disk synced {number(min(syncs))} to {number(max(syncs))} pages a second.",
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
    rows = [[name, *(told[column] for column in names)] for name, told in data["contestants"].items()]
    return _rows(["contestant", "settings", "history kept", "fsync", "handler calls"], rows).replace("---:", "---")


def _missing(data: dict[str, Any], readings: Readings) -> str:
    lines: list[str] = []
    for miss in data["missing"]:
        which = f", {miss['measure']}" if miss["measure"] else ""
        lines += [f"- {miss['contestant']}{which}: {miss['reason']}"]
    return "\n".join(sorted(set(lines)))  # once, in however many rounds it was missing


def _growth(kind: str, readings: Readings) -> str:
    """`growth backlog` or `growth history`: one column a size."""
    prefix = f"cost a job, {kind} of "
    found = [name for name in readings.measures if name.startswith(prefix)]
    if not found:
        return f"*Not measured in this run: cost as {kind} grows.*"
    names = [name for name in BY_NAME if any(name in readings.measures[m].values for m in found)]
    rows = []
    for who in names:
        medians = [readings.median(measure, who) for measure in found]
        rows.append([who, *("" if value is None else number(value) for value in medians)])
    return _rows([f"µs a job, {kind} of", *(name.removeprefix(prefix) for name in found)], rows)


def _model(data: dict[str, Any], readings: Readings) -> str:
    """What the cost of one job predicts, beside what was measured."""
    name, cores = "detent-postgres", data["machine"]["cores"]
    cost = cost_of(readings, name)
    if cost is None:
        return "*Not measured in this run: CPU per job on Postgres.*"
    rows = []
    for workers, rate in measured(readings, name).items():
        predicted = cost.predicted(workers, cores)
        rows.append([f"{workers} on this machine", number(predicted), number(rate), f"{rate / predicted:.2f}"])
    for size in (4, 16, 64):
        which = f"enough for a server of {size} cores ({cost.workers_needed(size):.0f} worker cores)"
        rows += [[which, number(cost.server_alone(size)), "not measured", ""]]
    worker, server = cost.worker * 1e6, cost.server * 1e6
    head = f"One job costs {worker:.0f} µs of a worker's core and {server:.0f} µs of the server's.\n\n"
    return head + _rows(["workers", "predicted jobs/s", "measured jobs/s", "measured / predicted"], rows)
