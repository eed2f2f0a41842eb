"""The metrics of an empty database and of a process that has histograms."""

import asyncio
from functools import partial
from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.engine.metrics.alerts import list_alerts, read_inputs
from detent.observability import metrics
from detent.observability.histograms import ExecutionHistograms
from detent.stores.sqlite.store import SqliteStore


def families() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name as Prometheus shows it, type, labels, help)."""
    return [
        (
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            tuple(getattr(family, "_labelnames", ())),
            family.documentation,
        )
        for family in asyncio.run(_families())
    ]


async def _families() -> list[Any]:
    engine = Engine(SqliteStore(":memory:"), CONTRACTS)
    await engine.open()
    try:
        readings = await engine.store.read(partial(read_inputs, engine))
        return list(metrics._families(readings, await list_alerts(engine), [], ExecutionHistograms()))
    finally:
        await engine.close()
