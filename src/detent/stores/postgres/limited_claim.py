"""Claims under limits and weights on Postgres: look, plan, take; again at once when others were faster."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detent.core.limits import Meter, spent_from
from detent.ports.claims import Claimed, ClaimRequest, Success
from detent.stores.claim_plan import Found, Plan, Seen, make_plan, remembered
from detent.stores.lanes import RANK_SHIFT, LaneBook, party_of, rank_of

from .claim import AGAIN, Answer, Edges, PostgresTx, run_settle_and_claim, settle_and_claim_values
from .claim_by_id import unsettled_of
from .dialect import compiled
from .lost_claims import less

Run = Callable[[str, Mapping[str, Any]], Awaitable[list[Any]]]
"""Run one of the claim_within_limits statements by its name."""
_WIDER = 4
_LANES_AT_MOST = 4_096
_CLOSED_AT_MOST = 4_096
_CLOSED_MICROS = 200_000


@dataclass(slots=True)
class Looked:
    """What the first statement told: what was settled and promoted, and everything a plan rests on."""

    seen: Seen
    version: int
    promoted: int
    settled: str | None

    @staticmethod
    def of(rows: Sequence[Any], book: LaneBook, *, counted: bool) -> "Looked":
        _, now, version, promoted, settled, _ = rows[0]
        looked = Looked(Seen(now), version, promoted, settled)
        limits = {limit.id: limit for limit in book.limits}
        seen, steps = looked.seen, {}
        held: dict[int, int] = {}
        for row, first, second, number, name, other in rows[1:]:
            if row == 1:
                steps[first] = second
                seen.lanes.append(Found(first, number))
                book.parties[party_of(first)] = name, other
            elif row == 2:
                held[first] = number
                book.parties[party_of(first)] = name, other
            elif number in limits:
                seen.meters[number, name] = Meter(first, limits[number], second, spent_from(other))
        seen.lanes.sort(key=lambda found: steps[found.lane])
        seen.held = held if counted else None
        return looked


@dataclass(slots=True)
class LimitedClaim:
    """What became of one claim_within_limits claim."""

    claimed: list[Claimed]
    refused: list[Success]
    wrote: bool = False


async def claim_within_limits(
    run: Run,
    refresh: Callable[[], Awaitable[None]],
    book: LaneBook,
    edges: Edges,
    successes: Sequence[Success],
    request: ClaimRequest,
    now: int,
    *,
    once: bool = False,
) -> LimitedClaim:
    """Settle and claim; again where the first attempt tells that there is more to have. once: lock meters once."""
    done = LimitedClaim([], [])
    rest: ClaimRequest | None = request
    first, lanes_at_most, counting = book.relief(), request.limit, False
    if book.closed and now >= book.closed_until:
        book.closed.clear()
    for attempt in range(1 + AGAIN):
        assert rest is not None
        asked = replace(rest, limit=lanes_at_most)
        values = settle_and_claim_values(successes, asked, book, edges, now, relaxed=not successes)
        rows = await run("look", values | _look_values(book, rest, first, counting))
        looked = Looked.of(rows, book, counted=counting)
        if attempt == 0:
            done.refused = unsettled_of(looked.settled, successes)
            done.wrote = len(done.refused) < len(successes)
            successes = []
        if looked.version != book.version:
            await refresh()
            if not book.ruled:
                break
            continue
        plan = make_plan(book, looked.seen, rest.limit)
        if plan.missing:
            await run("add_meters", _missing_values(plan, now))
            continue
        if plan.uncertain and attempt < AGAIN:
            counting = True
            continue
        in_turn, first, counting = first is not None, None, False
        if in_turn:
            book.relieved = min((rank_of(found.lane) for found in looked.seen.lanes), default=-1)
        took, more = await _take(run, book, edges, rest, looked.seen, plan, now)
        done.claimed += took
        done.wrote |= bool(took)
        rest = less(rest, len(took))
        if rest is None or (once and plan.quotas):
            break
        crowded = len(looked.seen.lanes) >= lanes_at_most
        if crowded:
            lanes_at_most = min(lanes_at_most * _WIDER, _LANES_AT_MOST)
            _close(book, plan, looked.seen.now)
        if not (looked.promoted or crowded or more or in_turn):
            break
    return done


def _close(book: LaneBook, plan: Plan, now: int) -> None:
    """Where there are more lanes than one look sees, those that are full are passed over for a moment."""
    book.closed_until = min(now + _CLOSED_MICROS, book.opens_at or now + _CLOSED_MICROS)
    if len(book.closed) < _CLOSED_AT_MOST:
        book.closed |= plan.full


def _missing_values(plan: Plan, now: int) -> dict[str, Any]:
    numbers, subjects = zip(*sorted(plan.missing), strict=True)
    return {"limit_ids": [str(number) for number in numbers], "subjects": list(subjects), "now": now}


def _look_values(book: LaneBook, request: ClaimRequest, first: int | None, counting: bool) -> dict[str, Any]:
    return {
        "first": -1 if first is None else (first << RANK_SHIFT) - 1,
        "closed": [str(cell) for cell in book.closed],
        "dated": book.dated,
        "counting": counting,
        "at_most": request.limit,
    }


async def _take(
    run: Run, book: LaneBook, edges: Edges, request: ClaimRequest, seen: Seen, plan: Plan, now: int
) -> tuple[list[Claimed], bool]:
    """What was claimed, and whether there is more: a lane gave all it was asked for while another came short, or a
    meter had become too small meanwhile."""
    if not plan.quotas:
        return [], False
    meters = sorted((meter for meter in seen.meters.values() if meter.id in plan.takes), key=lambda meter: meter.id)
    pairs = [(lane, number) for lane in plan.quotas for number in plan.meters[lane]]
    values = settle_and_claim_values([], request, book, edges, now, relaxed=True) | {
        "lanes": [str(lane) for lane in plan.quotas],
        "quotas": [str(quota) for quota in plan.quotas.values()],
        "pair_lanes": [str(lane) for lane, _ in pairs],
        "pair_meters": [str(number) for _, number in pairs],
        "meters": [str(meter.id) for meter in meters],
        "seen": [str(meter.taken) for meter in meters],
        "rooms": [str(plan.rooms[meter.id]) for meter in meters],
        "takes": [str(plan.takes[meter.id]) for meter in meters],
        "spent": [remembered(meter, seen.now) for meter in meters],
        "rated": [str(meter.limit.rate is not None) for meter in meters],
        "dated": book.dated,
    }
    rows = await run("claim_limited", values)
    answer = Answer(rows, request.token)
    answer.advance(book, remember_floors=False)
    given = Counter(row[14] for row in rows[1:])
    served = any(given[lane] == quota for lane, quota in plan.quotas.items())
    return answer.claimed, answer.promoted > 0 or (served and len(answer.claimed) < sum(plan.quotas.values()))


class PlanningTx(PostgresTx):
    """The whole transaction a store hands to the engine, limits included."""

    async def claim_planned(self, request: ClaimRequest) -> list[Claimed]:
        """Meters are locked once: in two helpings, two transactions could wait for each other in a circle."""
        await self.prepare()
        done = await claim_within_limits(
            self._run, self.refresh_book, self.book, self._edges, [], request, self.now, once=True
        )
        self.wrote |= done.wrote
        return done.claimed

    async def _run(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        return await run_settle_and_claim(self.connection, compiled(self._texts[name]), {**values, "relaxed": False})
