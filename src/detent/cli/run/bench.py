"""`detent bench`: measures a database; by default a temporary SQLite file."""

import asyncio
import tempfile
from typing import Annotated, Any

from detent.cli.diagnose.database import durability, shown_url
from detent.cli.options import AsJson, Url, option
from detent.cli.output import print_json, print_line, print_table

from .bench_run import MEASURES, measure

Jobs = Annotated[int, option("--jobs", "How many jobs to enqueue in bulk and drain.", min=1, max=1_000_000)]
ListMeasures = Annotated[bool, option("--list", "List the measures and exit.")]


def bench(url: Url = None, jobs: Jobs = 10_000, listed: ListMeasures = False, as_json: AsJson = False) -> None:
    """Measure enqueueing, draining and pickup latency on a temporary SQLite file, or on the database of --url."""
    if listed:
        if as_json:
            print_json({"measures": MEASURES})
        else:
            print_table(("measure", "meaning"), list(MEASURES.items()))
        return
    if url is None:
        with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
            database = f"sqlite:///{folder}/bench.db"
            readings = asyncio.run(measure(database, jobs, may_migrate=True))
            location = "a temporary SQLite file"
            durable = durability(database)
    else:
        readings, location, durable = asyncio.run(measure(url, jobs)), shown_url(url), durability(url)
    if as_json:
        views: list[dict[str, Any]] = [{"measure": r.measure, "value": r.value, "unit": r.unit} for r in readings]
        print_json({"where": location, "durability": durable, "jobs": jobs, "readings": views})
        return
    print_line(f"on {location} ({durable}), {jobs:,} jobs")
    print_table(("measure", ">value", "unit"), [[r.measure, _format_number(r.value), r.unit] for r in readings])
    if url is not None:
        print_line("The finished jobs stay in the database until a retention rule deletes them.")


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
