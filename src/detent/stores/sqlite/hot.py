"""The hot acts of SQLite, decided in SQL with the statuses of the contract: plain success and claim."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from ...core.contract import Contract, Move, Phase
from ...core.job import Micros
from ...ports import Claimed, ClaimRequest, Success
from ...wire import Named
from ..lanes import LaneBook, group_of, quotas, rank_of, ranks
from .tx import SQL, SqliteCold

_HOPS = 64
_PROMOTE = 500


class SqliteTx(SqliteCold):
    """The whole transaction a store hands to the engine."""

    def __init__(
        self, connection: apsw.Connection, now: Micros, book: LaneBook, contracts: Mapping[str, Contract]
    ) -> None:
        super().__init__(connection, now, book)
        self.known = contracts

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        """End these jobs well; returns those whose token does not stand on a leased row."""
        refused: list[Success] = []
        by_contract: dict[str, list[Success]] = defaultdict(list)
        for success in successes:
            by_contract[success.contract].append(success)
        for name, batch in by_contract.items():
            contract = self.known.get(name)
            leased = contract.in_phase(Phase.LEASED) if contract else []
            for source in leased:
                assert contract is not None
                batch = self._succeed_from(contract, source, batch)
            refused += batch
        return refused

    def _succeed_from(self, contract: Contract, source: str, batch: list[Success]) -> list[Success]:
        edge = contract.edge(source, Move.SUCCEED)
        assert edge is not None, "a checked contract can succeed from every leased status"
        held = {s.id: s.token for s in batch}
        values = {"held": json.dumps(held), "source": source, "contract": contract.name, "now": self.now}
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
        for lanes in ranks(walk, allowed, book, request.limit):
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

    def _walk(self, start: int) -> list[int]:
        found = self.connection.execute(SQL["walk_lanes"], {"from": start, "hops": _HOPS})
        return [row[0] for row in found]

    def _claim_lane(self, value: int, quota: int, contract: Contract, request: ClaimRequest) -> list[Claimed]:
        picked = self.rows("pick_lane", value, quota)
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

    def _claim_named(self, request: ClaimRequest, named: Sequence[Named]) -> list[Claimed]:
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
    timeout, trace, root, key, cancel, due, parent, _ = rest
    told = (job_id, token, contract, job_type, queue, tenant, payload, executions + 1, retries, version + 1)
    return Claimed(*told, timeout, trace, root or job_id, key, cancel, due, parent)


def _remembering(walk: Callable[[int], list[int]]) -> Callable[[int], list[int]]:
    """One walk usually sees every lane there is; then later hops need no query."""
    seen = walk(0)
    return walk if len(seen) >= _HOPS else lambda start: [value for value in seen if value >= start]
