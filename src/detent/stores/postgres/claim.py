"""The hot act of Postgres: settle, promote and claim in one statement (cycle.sql), with the contracts passed in."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from detent.core.contract.model import Contract, Move, Phase
from detent.ports.claims import Claimed, ClaimRequest, Success
from detent.stores.lanes import RANK_SHIFT, LaneBook, rank_of

from .claim_by_id import Taken, claim_by_id_values, settled_values, unsettled_of
from .dialect import Query, compiled
from .lost_claims import less
from .tx import Connection, PostgresTxQueries

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

AGAIN = 3
"""How often a claim that got less than it asked for, for a passing reason, is repeated at once."""
_LOCAL = "; ".join(f"SET LOCAL {name} = {value}" for name, value in SETTINGS.items())


class Edges:
    """The claim and succeed edges of every contract, as the arrays the statement takes."""

    def __init__(self, contracts: Mapping[str, Contract]) -> None:
        self.contracts = frozenset(contracts)
        self.wired = frozenset(name for name, contract in contracts.items() if contract.wired)
        self._rows = {
            (prefix, c.name): [
                (c.name, status, edge.event, edge.target)
                for status in c.in_phase(phase)
                if (edge := c.edge(status, move))
            ]
            for prefix, move, phase in (("end", Move.SUCCEED, Phase.LEASED), ("claim", Move.CLAIM, Phase.CLAIMABLE))
            for c in contracts.values()
        }
        self._values: dict[tuple[str, frozenset[str]], dict[str, list[str]]] = {}

    def values(self, prefix: str, contracts: Iterable[str]) -> dict[str, list[str]]:
        """Of these contracts only: the statement compares every row with each edge it is given."""
        wanted = frozenset(contracts)
        values = self._values.get((prefix, wanted))
        if values is None:
            found = [row for name in sorted(wanted) for row in self._rows.get((prefix, name), ())]
            names = ("contracts", "sources", "events", "targets")
            values = {f"{prefix}_{name}": [row[position] for row in found] for position, name in enumerate(names)}
            self._values[prefix, wanted] = values
        return values


def settle_and_claim_values(
    successes: Sequence[Success],
    request: ClaimRequest | None,
    book: LaneBook,
    edges: Edges,
    now: int,
    relaxed: bool = False,
) -> dict[str, Any]:
    """Successes in the order of their ids, so that no two cycles wait for each other in a circle; all of them of
    children, or none.

    relaxed: the commit need not reach the disk before it is answered.
    """
    allowed = book.allowed_groups(request, edges.contracts) if request else {}
    ordered = sorted(successes, key=itemgetter(0))
    floors = book.floors
    return {
        "now": now,
        "relaxed": relaxed,
        "family": bool(ordered) and ordered[0].parent_id is not None,
        **settled_values(ordered),
        "version": book.version,
        "wanted": request.limit if request and allowed else 0,
        "groups": [str(group) for group in allowed],
        "paused_parties": [str(party) for party in book.paused_parties],
        "cursors": [str(lane) for lane in book.cursors.values()],
        "floor_lanes": [str(lane) for lane in floors],
        "floor_dues": [str(due) for due, _ in floors.values()],
        "floor_ids": [job_id for _, job_id in floors.values()],
        "token": request.token if request else "",
        "worker": request.worker if request else "",
        "lease": request.lease if request else 0,
        **edges.values("end", {s[2] for s in ordered}),
        **edges.values("claim", set(allowed.values())),
    }


class Answer:
    """What the statement told: how many were settled and promoted, the lane version, the claims."""

    __slots__ = ("_settled", "claimed", "last", "partial", "promoted", "version", "wrote")

    def __init__(self, rows: Sequence[Any], token: str) -> None:
        head, *found = rows
        self._settled: str | None = head[5]
        self.promoted: int = head[7]
        self.version: int = head[14]
        self.wrote = len(rows) > 1 or head[6] > 0
        self.partial = False
        """The claim began at a lower priority: what it left free is for the others."""
        found.sort(key=_served_order)
        self.claimed = [
            Claimed(
                row[0], token, row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10],
                row[11] or row[0], row[12], row[13], row[15], row[17], row[18],
            )
            for row in found
        ]  # fmt: skip
        self.last = {row[14]: (row[15], row[0]) for row in found}

    def unsettled(self, successes: Sequence[Success]) -> list[Success]:
        """Those whose token did not stand, or whose row somebody else held."""
        return unsettled_of(self._settled, successes)

    def rest(self, request: ClaimRequest, book: LaneBook) -> ClaimRequest | None:
        """What to ask for again at once: the book was out of date, or what has just come due can be claimed now."""
        passing = self.promoted > 0 or self.version != book.version or self.partial
        return less(request, len(self.claimed)) if passing else None

    def relieved(self, book: LaneBook) -> None:
        """This claim gave a lower priority its turn; the next such claim goes on behind it."""
        self.partial = True
        book.relieved = min(map(rank_of, self.last), default=-1)

    def advance(self, book: LaneBook, *, remember_floors: bool) -> None:
        for lane in self.last:
            book.cursors[rank_of(lane)] = lane
        if remember_floors:
            book.floors.update(self.last)


def in_turn(book: LaneBook, successes: Sequence[Success], request: ClaimRequest | None) -> tuple[str, dict[str, int]]:
    """Which statement a plain claim takes: the one that begins at the highest priority, or now and then lower."""
    first = book.relief() if request else None
    if first is None:
        return "settle_and_claim" if successes else "claim", {}
    return "settle_and_claim_in_turn", {"first": (first << RANK_SHIFT) - 1}


def _served_order(row: Any) -> tuple[int, int, str]:
    return row[16], row[15], row[0]


class PostgresTx(PostgresTxQueries):
    """The whole transaction a store hands to the engine."""

    def __init__(self, *args: Any, edges: Edges, **options: Any) -> None:
        super().__init__(*args, **options)
        self._edges = edges
        self._set = False
        self.claims: list[ClaimRequest] = []

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        refused: list[Success] = []
        for family in (False, True):
            batch = [s for s in successes if (s.parent_id is not None) is family]
            if batch:
                refused += (await self._settle_and_claim(batch, None)).unsettled(batch)
        await self.tell_parents_of(successes, refused)
        return refused

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        if request.named is not None:
            return await self._take(request)
        self.claims.append(request)
        claimed: list[Claimed] = []
        for _ in range(1 + AGAIN):
            await self.refresh_book()
            if self.book.ruled:
                claimed += await self.claim_planned(request)
                if self.book.ruled:
                    break
            answer = await self._settle_and_claim([], request)
            answer.advance(self.book, remember_floors=False)
            claimed += answer.claimed
            rest = answer.rest(request, self.book)
            if rest is None:
                break
            request = rest
        return claimed

    async def _take(self, request: ClaimRequest) -> list[Claimed]:
        await self.prepare()
        values = claim_by_id_values([], request, self._edges, self.now)
        answer = Taken(await run_settle_and_claim(self.connection, compiled(self._texts["claim_by_id"]), values))
        self.wrote |= answer.wrote
        return answer.claimed

    async def claim_planned(self, request: ClaimRequest) -> list[Claimed]:
        """A claim under limits; see planned.py."""
        raise NameError("claim_planned")

    async def prepare(self) -> None:
        if not self._set:
            await self.connection.execute(_LOCAL)
            self._set = True

    async def _settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> Answer:
        await self.prepare()
        name, more = in_turn(self.book, successes, request)
        values = settle_and_claim_values(successes, request, self.book, self._edges, self.now) | more
        query = compiled(self._texts[name])
        answer = Answer(await run_settle_and_claim(self.connection, query, values), request.token if request else "")
        if more:
            answer.relieved(self.book)
        self.wrote |= answer.wrote
        return answer


async def run_settle_and_claim(connection: Connection, query: Query, values: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = await connection.fetch(query.text, *(values[name] for name in query.names))
    return rows
