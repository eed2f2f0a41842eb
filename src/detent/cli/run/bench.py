"""`detent bench`: how fast a database is from here; by default one made for it and thrown away."""

import asyncio
import tempfile
from typing import Annotated, Any

from detent.cli.diagnose.database import durability, shown_url
from detent.cli.options import AsJson, Url, option
from detent.cli.output import say, say_json, show_table

from .bench_run import MEASURES, measure

Jobs = Annotated[int, option("--jobs", "How many jobs are drained.", min=1, max=1_000_000)]
ListMeasures = Annotated[bool, option("--list", "Say what is measured and stop.")]


def bench(url: Url = None, jobs: Jobs = 10_000, listed: ListMeasures = False, as_json: AsJson = False) -> None:
    """Measure enqueue, drain and pickup from here: on a SQLite file made for it, or on the database you name."""
    if listed:
        if as_json:
            say_json({"measures": MEASURES})
        else:
            show_table(("measure", "what it is"), list(MEASURES.items()))
        return
    if url is None:
        with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
            database = f"sqlite:///{folder}/bench.db"
            found, where = asyncio.run(measure(database, jobs, may_migrate=True)), "a SQLite file of its own"
            durable = durability(database)
    else:
        found, where, durable = asyncio.run(measure(url, jobs)), shown_url(url), durability(url)
    if as_json:
        readings: list[dict[str, Any]] = [{"measure": r.measure, "value": r.value, "unit": r.unit} for r in found]
        say_json({"where": where, "durability": durable, "jobs": jobs, "readings": readings})
        return
    say(f"on {where} ({durable}), {jobs:,} jobs")
    show_table(("measure", ">value", "unit"), [[r.measure, _figure(r.value), r.unit] for r in found])
    if url is not None:
        say("its jobs have ended and stay in the log until retention takes them")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
