"""Plain successes and claims on SQLite, done in SQL with the statuses of the contract as parameters."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Micros
from detent.ports.claims import Claimed, ClaimRequest, NamedClaim, Success
from detent.stores.claim_plan import ClaimableLane, ClaimPlan, ClaimSnapshot, compacted_history, make_plan, meter_keys
from detent.stores.lanes import (
    FIRST_SUSPECT_LANE,
    SUSPECT_RANK,
    Walk,
    group_of,
    lanes_by_rank,
    party_of,
    quotas,
    rank_of,
)
from detent.stores.named_queries import Row
from detent.stores.rows import TRACE_PREFIX

from .tx import SQL, SqliteTxQueries

_HOPS = 64
_PROMOTE = 500


class SqliteTx(SqliteTxQueries):
    """The transaction that the store passes to the engine."""

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        refused: list[Success] = []
        batches: dict[tuple[str, bool], list[Success]] = defaultdict(list)
        for success in successes:
            batches[success.contract, success.parent_id is not None].append(success)
        for (name, _), batch in batches.items():
            contract = self.registered_contracts.get(name)
            leased = contract.in_phase(Phase.LEASED) if contract else []
            for source in leased:
                assert contract is not None
                batch = await self._succeed_from(contract, source, batch)
            refused += batch
        await self.record_child_successes(successes, refused)
        return refused

    async def _succeed_from(self, contract: Contract, source: str, batch: list[Success]) -> list[Success]:
        edge = contract.edge(source, Move.SUCCEED)
        assert edge is not None, "a checked contract can succeed from every leased status"
        held = {s.id: s.token for s in batch}
        with_parent = bool(batch) and batch[0].parent_id is not None
        select = {"held": json.dumps(held), "source": source, "contract": contract.name, "now": self.now}
        select["family"] = with_parent
        values = {**select, "target": await self.number_of("state", contract.name, edge.target)}
        values["edge"] = await self.number_of("edge", edge.event, source, edge.target)
        unsettled: list[Success] = []
        self.connection.execute(SQL["succeed_events"], values)
        if self.connection.changes() != len(held):
            held_ids = {row[0] for row in self.connection.execute(SQL["leased_with_token"], select)}
            unsettled = [s for s in batch if s.id not in held_ids]
            batch = [s for s in batch if s.id in held_ids]
            values["held"] = json.dumps({s.id: s.token for s in batch})
        self.connection.execute(SQL["succeed_jobs"], values)
        results = {s.id: s.result for s in batch if s.result is not None}
        if results:
            self.connection.execute(SQL["succeed_results"], {"results": json.dumps(results)})
        return unsettled

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Lease due jobs: highest priority first, evenly over the lanes that this worker may claim from."""
        if request.named is not None:
            return await self._claim_named(request, request.named)
        await self.promote(_PROMOTE)
        await self.refresh_lane_cache()
        lane_cache = self.lane_cache
        allowed = lane_cache.allowed_groups(request, self.registered_contracts)
        claimed: list[Claimed] = []
        if not allowed or request.limit <= 0:
            return claimed
        walk = _cached_walk(self._walk)
        if lane_cache.needs_plan:
            return await self._claim_planned(request, allowed, walk)
        for lanes in self._lanes_by_rank(walk, allowed, request, request.limit):
            for even in (True, False):  # first an even share of each lane, then any lane that has more jobs
                missing = request.limit - len(claimed)
                shares = quotas(lanes, missing) if even else ((value, missing) for value in lanes)
                for value, quota in shares:
                    room = min(quota, request.limit - len(claimed))
                    if room > 0:
                        claimed += await self._lease(value, self.rows("pick_lane", value, room), request)
                        lane_cache.cursors[rank_of(value)] = value
            if len(claimed) >= request.limit:
                break
        return claimed

    def _lanes_by_rank(
        self, walk: Walk, allowed: Mapping[int, str], request: ClaimRequest, at_most: int
    ) -> Iterator[list[int]]:
        """Lanes rank by rank, highest priority first; in every 8th claim a lower rank comes before them."""
        lane_cache = self.lane_cache
        if request.only_suspects:
            return lanes_by_rank(walk, allowed, lane_cache, at_most, SUSPECT_RANK)
        first = lane_cache.next_start_rank()
        if first is None:
            return lanes_by_rank(walk, allowed, lane_cache, at_most)
        low_lanes = next(lanes_by_rank(walk, allowed, lane_cache, at_most, first), None)
        lane_cache.last_low_rank = rank_of(low_lanes[0]) if low_lanes else -1
        return chain([low_lanes] if low_lanes else (), lanes_by_rank(walk, allowed, lane_cache, at_most))

    async def _claim_planned(self, request: ClaimRequest, allowed: Mapping[int, str], walk: Walk) -> list[Claimed]:
        """A claim within limits and weights: read lanes and meters, plan, then claim what was planned."""
        snapshot = ClaimSnapshot(self.now)
        plan = ClaimPlan()
        for lanes in self._lanes_by_rank(walk, allowed, request, request.limit + _HOPS):
            read = {claimable.lane for claimable in snapshot.lanes}
            snapshot.lanes += await self._read_lanes(
                [lane for lane in lanes if lane not in read], request.limit, snapshot
            )
            plan = make_plan(self.lane_cache, snapshot, request.limit)
            if plan.uncertain:
                snapshot.held = await self.leased_by_lane()
                plan = make_plan(self.lane_cache, snapshot, request.limit)
            if sum(plan.quotas.values()) >= request.limit:
                break
        claimed: list[Claimed] = []
        latest = self.now
        for value, quota in plan.quotas.items():
            picked = self.rows("pick_before_deadline", value, self.now, quota)
            assert len(picked) == quota, "rows counted in this transaction cannot disappear"
            latest = max((latest, *(row[-1] for row in picked)))
            claimed += await self._lease(value, [row[:-1] for row in picked], request)
            self.lane_cache.cursors[rank_of(value)] = value
        await self._update_meters(snapshot, plan, latest)
        return claimed

    async def _read_lanes(self, lanes: Sequence[int], at_most: int, snapshot: ClaimSnapshot) -> list[ClaimableLane]:
        await self.load_parties(lanes)
        limits = {limit.id: limit for limit in self.lane_cache.limits}
        for key in {key for value in lanes for key in meter_keys(self.lane_cache, value)} - snapshot.meters.keys():
            meter = await self.meter(limits[key[0]], key[1])
            if meter is None:
                await self.add_meters([key])
                meter = await self.meter(limits[key[0]], key[1])
            assert meter is not None, "it was inserted in this transaction"
            snapshot.meters[key] = meter
        values = {"at_most": at_most, "now": self.now, "dated": self.lane_cache.has_deadlines}
        counted = [(value, await self.number("available", lane=value, **values)) for value in lanes]
        return [ClaimableLane(value, number) for value, number in counted if number]

    async def _update_meters(self, snapshot: ClaimSnapshot, plan: ClaimPlan, at: Micros) -> None:
        """Count the claims. A rate records the time of the claim events: later than now if a clock was set back."""
        for meter in snapshot.meters.values():
            number = plan.takes.get(meter.id, 0)
            if number:
                spent = compacted_history(meter, self.now) + (f"{at}:{number} " if meter.limit.rate else "")
                await self.change("update_meter", id=meter.id, number=number, spent=spent, now=self.now)

    def _walk(self, start: int) -> list[int]:
        rows = self.connection.execute(SQL["walk_lanes"], {"from": start, "hops": _HOPS})
        return [row[0] for row in rows]

    async def _lease(self, lane: int, picked: Sequence[Row], request: ClaimRequest) -> list[Claimed]:
        """Lease the picked rows of one lane."""
        name, queue, job_type = self.lane_cache.groups[group_of(lane)]
        await self.load_parties([lane])
        kind = JobNames(name, job_type, queue, self.lane_cache.parties[party_of(lane)][0])
        by_state: dict[int, list[int]] = defaultdict(list)
        for row in picked:
            by_state[row[-1]].append(row[0])
        for state, numbers in by_state.items():
            values = await self._claim_values(name, await self._status_of(name, state), request)
            values |= {"numbers": json.dumps(numbers), "token": request.token}
            self.connection.execute(SQL["claim_events"], values)
            self.connection.execute(SQL["claim_jobs"], values)
        return [claimed_from(row, kind, request.token, request.only_suspects) for row in picked]

    async def _status_of(self, name: str, state: int) -> str:
        for status in self.registered_contracts[name].in_phase(Phase.CLAIMABLE):
            if await self.number_of("state", name, status) == state:
                return status
        status_of_old_state: str = self.rows("status_of", state)[0][0]
        return status_of_old_state

    async def _claim_values(self, name: str, status: str, request: ClaimRequest) -> dict[str, Any]:
        """Parameters of the statements that claim jobs of one contract and status."""
        edge = self.registered_contracts[name].edge(status, Move.CLAIM)
        assert edge is not None, "a checked contract can claim from every claimable status"
        return {
            "edge": await self.number_of("edge", edge.event, status, edge.target),
            "target": await self.number_of("state", name, edge.target),
            "now": self.now,
            "worker": await self.number_of("actor", request.worker),
            "lease": request.lease,
        }

    async def _claim_named(self, request: ClaimRequest, named: Sequence[NamedClaim]) -> list[Claimed]:
        stream_contracts = [name for name, contract in self.registered_contracts.items() if contract.uses_stream]
        values: dict[str, Any] = {"named": json.dumps(named), "contracts": json.dumps(stream_contracts)}
        picked = await self.query("pick_named", **values, now=self.now, suspects=FIRST_SUSPECT_LANE)
        by_status: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        claimed = []
        for *row, contract, queue, job_type, tenant_id, status, suspect, token in picked:
            by_status[contract, status][row[0]] = token
            claimed.append(claimed_from(row, JobNames(contract, job_type, queue, tenant_id), token, bool(suspect)))
        for (name, status), tokens in by_status.items():
            values = await self._claim_values(name, status, request)
            values |= {"tokens": json.dumps(tokens), "numbers": json.dumps(list(tokens))}
            self.connection.execute(SQL["claim_events"], values)
            self.connection.execute(SQL["claim_named_jobs"], values)
        return claimed


class JobNames(NamedTuple):
    """The names of a claimed job that its lane stands for, in the order of `Claimed`."""

    contract: str
    job_type: str
    queue: str
    tenant_id: str


def claimed_from(row: Sequence[Any], names: JobNames, token: str, suspect: bool) -> Claimed:
    """The Claimed of a row that was read before the claim changed it."""
    (_, job_id, payload, executions, retries, version, timeout, trace, root, key, cancel, due, traceparent, parent,
     _) = row  # fmt: skip
    return Claimed(
        job_id, token, names.contract, names.job_type, names.queue, names.tenant_id, payload, executions + 1, retries,
        version + 1, timeout, trace or TRACE_PREFIX + job_id, root or job_id, key, cancel, due, traceparent, parent,
        suspect,
    )  # fmt: skip


def _cached_walk(walk: Callable[[int], list[int]]) -> Callable[[int], list[int]]:
    """The walk without further queries, if its first query has returned all lanes; that is the usual case."""
    lanes = walk(0)
    return walk if len(lanes) >= _HOPS else lambda start: [value for value in lanes if value >= start]
