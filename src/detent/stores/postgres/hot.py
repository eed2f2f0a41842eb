"""The hot act of Postgres: settle, promote and claim in one statement (cycle.sql), with the contracts passed in."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.contract import Contract, Move, Phase
from ...ports import Claimed, ClaimRequest, Success
from ..lanes import LaneBook, rank_of
from .dialect import Query, compiled
from .tx import Connection, PostgresCold

SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""The plan of the hot statement must be index probes, on an empty table as on a full one: see ADR 0003."""

_LOCAL = "; ".join(f"SET LOCAL {name} = {value}" for name, value in SETTINGS.items())


class Edges:
    """The claim and succeed edges of every contract, as the arrays the statement takes."""

    def __init__(self, contracts: Mapping[str, Contract]) -> None:
        self.contracts = frozenset(contracts)
        self.values: dict[str, list[str]] = {}
        for prefix, move, phase in (("end", Move.SUCCEED, Phase.LEASED), ("claim", Move.CLAIM, Phase.CLAIMABLE)):
            found = [
                (c.name, status, edge.event, edge.target)
                for c in contracts.values()
                for status in c.in_phase(phase)
                if (edge := c.edge(status, move))
            ]
            for position, name in enumerate(("contracts", "sources", "events", "targets")):
                self.values[f"{prefix}_{name}"] = [row[position] for row in found]


def cycle_values(
    successes: Sequence[Success], request: ClaimRequest | None, book: LaneBook, edges: Edges, now: int
) -> dict[str, Any]:
    groups = sorted(book.allowed_groups(request, edges.contracts)) if request else []
    floors = book.floors
    return {
        "now": now,
        "ids": [s.id for s in successes],
        "tokens": [s.token for s in successes],
        "results": [s.result for s in successes],
        "wanted": request.limit if request and groups else 0,
        "groups": groups,
        "paused_parties": list(book.paused_parties),
        "cursors": list(book.cursors.values()),
        "floor_lanes": list(floors),
        "floor_dues": [due for due, _ in floors.values()],
        "floor_ids": [job_id for _, job_id in floors.values()],
        "token": request.token if request else "",
        "worker": request.worker if request else "",
        "lease": request.lease if request else 0,
        **edges.values,
    }


class Answer:
    """What the statement told: how many were settled and promoted, the lane version, the claims."""

    __slots__ = ("_settled", "claimed", "last", "promoted", "version")

    def __init__(self, rows: Sequence[Any], token: str) -> None:
        head, *found = rows
        self._settled: str | None = head[5]
        self.promoted: int = head[7]
        self.version: int = head[14]
        found.sort(key=_served_order)
        self.claimed = [
            Claimed(
                row[0], token, row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10],
                row[11] or row[0], row[12], row[13],
            )
            for row in found
        ]  # fmt: skip
        self.last = {row[14]: (row[15], row[0]) for row in found}

    def unsettled(self, successes: Sequence[Success]) -> list[Success]:
        """Those whose token did not stand, or whose row somebody else held."""
        if self._settled is None:
            return []
        done = set(self._settled.split(","))
        return [success for success in successes if success.id not in done]

    def advance(self, book: LaneBook, *, remember_floors: bool) -> None:
        for lane in self.last:
            book.cursors[rank_of(lane)] = lane
        if remember_floors:
            book.floors.update(self.last)


def _served_order(row: Any) -> tuple[int, int, str]:
    return row[16], row[15], row[0]


class PostgresTx(PostgresCold):
    """The whole transaction a store hands to the engine."""

    def __init__(self, *args: Any, edges: Edges, **options: Any) -> None:
        super().__init__(*args, **options)
        self._edges = edges
        self._set = False

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        return (await self._cycle(successes, None)).unsettled(successes)

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        await self.refresh_book()
        answer = await self._cycle([], request)
        if answer.promoted and not answer.claimed:
            answer = await self._cycle([], request)
        answer.advance(self.book, remember_floors=False)
        return answer.claimed

    async def _cycle(self, successes: Sequence[Success], request: ClaimRequest | None) -> Answer:
        if not self._set:
            await self.connection.execute(_LOCAL)
            self._set = True
        values = cycle_values(successes, request, self.book, self._edges, self.now)
        query = compiled(self._texts["cycle"])
        rows = await run_cycle(self.connection, query, values)
        return Answer(rows, request.token if request else "")


async def run_cycle(connection: Connection, query: Query, values: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = await connection.fetch(query.text, *(values[name] for name in query.names))
    return rows
