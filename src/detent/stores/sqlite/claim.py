"""The hot acts of SQLite, decided in SQL with the statuses of the contract: plain success and claim."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import apsw

from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Micros
from detent.ports.claims import Claimed, ClaimRequest, NamedClaim, Success
from detent.stores.claim_plan import Found, Plan, Seen, make_plan, readings, remembered
from detent.stores.lanes import LaneBook, Walk, group_of, quotas, rank_of, ranks

from .tx import SQL, SqliteTxQueries

_HOPS = 64
_PROMOTE = 500


class SqliteTx(SqliteTxQueries):
    """The whole transaction a store hands to the engine."""

    def __init__(
        self, connection: apsw.Connection, now: Micros, book: LaneBook, contracts: Mapping[str, Contract]
    ) -> None:
        super().__init__(connection, now, book)
        self.known = contracts

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        """End these jobs well; returns those whose token does not stand on a leased row."""
        refused: list[Success] = []
        alike: dict[tuple[str, bool], list[Success]] = defaultdict(list)
        for success in successes:
            alike[success.contract, success.parent_id is not None].append(success)
        for (name, _), batch in alike.items():
            contract = self.known.get(name)
            leased = contract.in_phase(Phase.LEASED) if contract else []
            for source in leased:
                assert contract is not None
                batch = self._succeed_from(contract, source, batch)
            refused += batch
        await self.tell_parents_of(successes, refused)
        return refused

    def _succeed_from(self, contract: Contract, source: str, batch: list[Success]) -> list[Success]:
        edge = contract.edge(source, Move.SUCCEED)
        assert edge is not None, "a checked contract can succeed from every leased status"
        held = {s.id: s.token for s in batch}
        family = bool(batch) and batch[0].parent_id is not None
        values = {"held": json.dumps(held), "source": source, "contract": contract.name, "now": self.now}
        values["family"] = family
        told = {**values, "target": edge.target, "event": edge.event}
        rest: list[Success] = []
        self.connection.execute(SQL["succeed_events"], told)
        if self.connection.changes() != len(held):
            standing = {row[0] for row in self.connection.execute(SQL["holders"], values)}
            rest = [s for s in batch if s.id not in standing]
            batch = [s for s in batch if s.id in standing]
            told["held"] = json.dumps({s.id: s.token for s in batch})
        self.connection.execute(SQL["succeed_jobs"], told)
        results = {s.id: s.result for s in batch if s.result is not None}
        if results:
            self.connection.execute(SQL["succeed_results"], {"results": json.dumps(results)})
        return rest

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Lease what is due, fairly over the lanes this claimer may take from, highest priority first."""
        if request.named is not None:
            return self._claim_named(request, request.named)
        await self.promote(_PROMOTE)
        await self.refresh_book()
        book = self.book
        allowed = book.allowed_groups(request, self.known)
        claimed: list[Claimed] = []
        if not allowed or request.limit <= 0:
            return claimed
        walk = _remembering(self._walk)
        if book.ruled:
            return await self._claim_planned(request, allowed, walk)
        for lanes in self._in_turn(walk, allowed, request.limit):
            for even in (True, False):  # first an even share, then whoever has more
                wanted = request.limit - len(claimed)
                shares = quotas(lanes, wanted) if even else ((value, wanted) for value in lanes)
                for value, quota in shares:
                    room = min(quota, request.limit - len(claimed))
                    if room > 0:
                        contract = self.known[allowed[group_of(value)]]
                        claimed += self._claim_lane(value, room, contract, request)
                        book.cursors[rank_of(value)] = value
            if len(claimed) >= request.limit:
                break
        return claimed

    def _in_turn(self, walk: Walk, allowed: Mapping[int, str], at_most: int) -> Iterator[list[int]]:
        """Lanes rank by rank, the highest first; now and then the next rank in turn goes before them."""
        book = self.book
        first = book.relief()
        if first is None:
            return ranks(walk, allowed, book, at_most)
        relieved = next(ranks(walk, allowed, book, at_most, first), None)
        book.relieved = rank_of(relieved[0]) if relieved else -1
        return chain([relieved] if relieved else (), ranks(walk, allowed, book, at_most))

    async def _claim_planned(self, request: ClaimRequest, allowed: Mapping[int, str], walk: Walk) -> list[Claimed]:
        """The same under limits and weights: look at everything that counts, then take what the plan says."""
        seen = Seen(self.now)
        plan = Plan()
        for lanes in self._in_turn(walk, allowed, request.limit + _HOPS):
            known = {found.lane for found in seen.lanes}
            seen.lanes += await self._found([lane for lane in lanes if lane not in known], request.limit, seen)
            plan = make_plan(self.book, seen, request.limit)
            if plan.uncertain:
                seen.held = await self.holding()
                plan = make_plan(self.book, seen, request.limit)
            if sum(plan.quotas.values()) >= request.limit:
                break
        claimed: list[Claimed] = []
        latest = self.now
        for value, quota in plan.quotas.items():
            picked = self.rows("pick_planned", value, self.now, quota)
            assert len(picked) == quota, "what was counted in this transaction is there"
            latest = max((latest, *(row[-1] for row in picked)))
            claimed += self._lease([row[:-1] for row in picked], self.known[allowed[group_of(value)]], request)
            self.book.cursors[rank_of(value)] = value
        await self._turn_meters(seen, plan, latest)
        return claimed

    async def _found(self, lanes: Sequence[int], at_most: int, seen: Seen) -> list[Found]:
        await self.know_parties(lanes)
        limits = {limit.id: limit for limit in self.book.limits}
        for reading in {reading for value in lanes for reading in readings(self.book, value)} - seen.meters.keys():
            meter = await self.meter(limits[reading[0]], reading[1])
            if meter is None:
                await self.add_meters([reading])
                meter = await self.meter(limits[reading[0]], reading[1])
            assert meter is not None, "it was made just now, in this transaction"
            seen.meters[reading] = meter
        values = {"at_most": at_most, "now": self.now, "dated": self.book.dated}
        counted = [(value, (await self.query("available", lane=value, **values))[0][0]) for value in lanes]
        return [Found(value, number) for value, number in counted if number]

    async def _turn_meters(self, seen: Seen, plan: Plan, at: Micros) -> None:
        """A rate remembers the moment the log tells: where a clock was set back, that is later than now."""
        for meter in seen.meters.values():
            number = plan.takes.get(meter.id, 0)
            if number:
                spent = remembered(meter, self.now) + (f"{at}:{number} " if meter.limit.rate else "")
                await self.change("turn_meter", id=meter.id, number=number, spent=spent, now=self.now)

    def _walk(self, start: int) -> list[int]:
        found = self.connection.execute(SQL["walk_lanes"], {"from": start, "hops": _HOPS})
        return [row[0] for row in found]

    def _claim_lane(self, value: int, quota: int, contract: Contract, request: ClaimRequest) -> list[Claimed]:
        return self._lease(self.rows("pick_lane", value, quota), contract, request)

    def _lease(self, picked: Sequence[Any], contract: Contract, request: ClaimRequest) -> list[Claimed]:
        by_status: dict[str, list[str]] = defaultdict(list)
        for row in picked:
            by_status[row[-1]].append(row[0])
        for status, ids in by_status.items():
            edge = contract.edge(status, Move.CLAIM)
            assert edge is not None, "a checked contract can claim from every claimable status"
            told = {
                "ids": json.dumps(ids),
                "event": edge.event,
                "target": edge.target,
                "now": self.now,
                "worker": request.worker,
                "token": request.token,
                "lease": request.lease,
            }
            self.connection.execute(SQL["claim_events"], told)
            self.connection.execute(SQL["claim_jobs"], told)
        return [claimed_from(row, request.token) for row in picked]

    def _claim_named(self, request: ClaimRequest, named: Sequence[NamedClaim]) -> list[Claimed]:
        wired = [name for name, contract in self.known.items() if contract.wired]
        asked = {"named": json.dumps(named), "contracts": json.dumps(wired), "now": self.now}
        picked: list[Any] = self.connection.execute(SQL["named"], asked).fetchall()
        by_status: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for row in picked:
            by_status[row[1], row[-2]][row[0]] = row[-1]
        for (name, status), tokens in by_status.items():
            edge = self.known[name].edge(status, Move.CLAIM)
            assert edge is not None, "a checked contract can claim from every claimable status"
            told = {"event": edge.event, "target": edge.target, "now": self.now, "worker": request.worker}
            self.connection.execute(SQL["claim_events"], {**told, "ids": json.dumps(list(tokens))})
            told |= {"tokens": json.dumps(tokens), "lease": request.lease}
            self.connection.execute(SQL["take_jobs"], told)
        return [claimed_from(row[:-1], row[-1]) for row in picked]


def claimed_from(row: Sequence[Any], token: str) -> Claimed:
    """A picked row (as it was before the claim) as the claim the worker is handed."""
    job_id, contract, job_type, queue, tenant, payload, executions, retries, version, *rest = row
    timeout, trace, root, key, cancel, due, traceparent, parent, _ = rest
    told = (job_id, token, contract, job_type, queue, tenant, payload, executions + 1, retries, version + 1)
    return Claimed(*told, timeout, trace, root or job_id, key, cancel, due, traceparent, parent)


def _remembering(walk: Callable[[int], list[int]]) -> Callable[[int], list[int]]:
    """One walk usually sees every lane there is; then later hops need no query."""
    seen = walk(0)
    return walk if len(seen) >= _HOPS else lambda start: [value for value in seen if value >= start]
