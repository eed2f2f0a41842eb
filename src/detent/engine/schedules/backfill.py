"""Backfill: jobs for the fires of a range that has passed, as far as they have none. Ordered by people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from detent.core.errors import InvalidInput, QuotaExceeded
from detent.core.job import Micros
from detent.core.schedule import Schedule, fires_between
from detent.core.times import SECOND, iso
from detent.engine.pruning import forgotten
from detent.ports.access import Audit
from detent.ports.tx import Tx

from .firing import make_job
from .request import INVALID, moment_of
from .schedules import get

if TYPE_CHECKING:
    from detent.engine.engine import Engine

MAX_FIRES = 10_000
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Backfill:
    """How many fires the range has, how many had their job before, and how many got one now, or would."""

    fires: int
    known: int = 0
    made: int = 0
    job_ids: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Order:
    schedule: Schedule
    actor: str
    reason: str | None
    apart: Micros
    """How much later each job falls due than the one before."""


async def backfill(
    engine: "Engine",
    reference: str,
    first: str | datetime,
    last: str | datetime,
    *,
    actor: str,
    reason: str | None = None,
    tenant: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
) -> Backfill:
    """A job for every fire from first to last that has none. rate: so many jobs a second fall due.

    Repeated after a crash it goes on where it was. It is no fire of the clock: overlap and misfire rules do not apply.
    """
    schedule = await get(engine, reference, tenant=tenant)
    moments = _range(engine, schedule, first, last)
    limit = await engine.store.read(partial(forgotten, schedule.id))
    if limit is not None and moments and moments[0] <= limit:
        told = f"which fires up to {iso(limit)} made jobs is no longer known; begin behind that moment"
        raise InvalidInput(told, code="BACKFILL_FORGOTTEN", field="from", limit=iso(limit))
    order = _Order(schedule, actor, reason, apart(rate))
    found = Backfill(len(moments))
    for start in range(0, len(moments), _BATCH):
        part = moments[start : start + _BATCH]
        missing = await engine.store.read(partial(_missing, schedule, part))
        if dry_run:
            found = replace(found, known=found.known + len(part) - len(missing), made=found.made + len(missing))
        elif missing:
            made = await _made(engine, order, missing, found.made)
            known = found.known + len(part) - len(made)
            found = replace(found, known=known, made=found.made + len(made), job_ids=(*found.job_ids, *made))
        else:
            found = replace(found, known=found.known + len(part))
    return found


async def _missing(schedule: Schedule, part: list[Micros], tx: Tx) -> list[Micros]:
    have = {fire.fire_at for fire in await tx.fires(schedule.id, part[0], part[-1], MAX_FIRES * 10)}
    return [moment for moment in part if moment not in have]


async def _made(engine: "Engine", order: _Order, moments: list[Micros], before: int) -> list[str]:
    try:
        return await engine._again(partial(_make, engine, order, moments, before))
    except QuotaExceeded as error:
        told = f"{error.message}: {before} jobs of this backfill were made, repeated it goes on behind them"
        raise QuotaExceeded(told, **error.extra, made=before) from None


async def _make(engine: "Engine", order: _Order, moments: list[Micros], before: int, tx: Tx) -> list[str]:
    made: list[str] = []
    for moment in moments:
        later = (before + len(made)) * order.apart
        job = await make_job(engine, tx, order.schedule, moment, order.actor, later)
        if job is not None:
            made.append(job.id)
    if made:
        told = {"from": iso(moments[0]), "to": iso(moments[-1]), "jobs": len(made)}
        subject, tenant = order.schedule.id, order.schedule.tenant_id
        await tx.add_audit(Audit(order.actor, "schedule.backfill", subject, tenant, order.reason, told))
    return made


def _range(engine: "Engine", schedule: Schedule, first: str | datetime, last: str | datetime) -> list[Micros]:
    start, end = moment_of(first, "from", schedule.timezone), moment_of(last, "to", schedule.timezone)
    if end < start or end > engine.store.now():
        told = "a backfill runs from an earlier moment to a later one that has passed; what is to come fires by itself"
        raise InvalidInput(told, code=INVALID, field="to")
    moments = list(islice(fires_between(schedule, start, end), MAX_FIRES + 1))
    if len(moments) > MAX_FIRES:
        told = f"more than {MAX_FIRES} fires lie in this range; take a shorter one, then the next"
        raise InvalidInput(told, code="BACKFILL_TOO_LARGE", limit=MAX_FIRES)
    return moments


def apart(rate: float | None) -> Micros:
    """The time between two jobs at so many a second; None: all at once."""
    if rate is None:
        return 0
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.001 <= rate <= 1_000_000:
        told = f"rate must be a number of jobs a second from 0.001 to 1000000, got {str(rate)[:40]!r}"
        raise InvalidInput(told, code="RATE_INVALID", field="rate")
    return int(SECOND / rate)
