"""Patroni with etcd and three nodes under load: switchovers, killed primaries, a partition, etcd down."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import pytest

from detent.client.connect import store_from
from detent.core.errors import StoreUnavailable
from detent.engine import Engine, Submission
from detent.system.ids import RandomIds
from support.postgres.fleet import Fleet, fleet_on, soon
from support.servers.databases import migrated
from support.servers.patroni import Cluster, Node, cluster

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
ROUNDS = 10
JOBS_PER_SECOND, SUBMITTERS = 200, 60
LEASE_SECONDS = 10.0


class Load:
    """Submits jobs at a steady rate, each repeated under its id until it is acknowledged; makes up for every gap."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids = RandomIds()
        self.acknowledged: list[tuple[float, str]] = []
        """(time of the acknowledgement, job id)"""
        self.stopping = False

    async def run(self) -> None:
        engine = Engine(store_from(self._url))
        await engine.open()
        try:
            await asyncio.gather(*(self._submit(engine) for _ in range(SUBMITTERS)))
        finally:
            await engine.close()

    async def _submit(self, engine: Engine) -> None:
        due = time.monotonic()
        while not self.stopping:
            due += SUBMITTERS / JOBS_PER_SECOND
            job = Submission("small", {"n": -1}, id=self._ids.job(), max_retries=50)
            while True:
                try:
                    await asyncio.wait_for(engine.jobs.submit(job), 15)
                except (StoreUnavailable, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    break
            self.acknowledged.append((time.monotonic(), job.id or ""))
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def longest_gap(self, since: float) -> float:
        """The longest time without an acknowledgement after `since`."""
        times = [since, *(at for at, _ in self.acknowledged if at >= since)]
        return max(later - earlier for earlier, later in pairwise(times))


class Drill:
    """One cluster under load, and what each kind of failure cost."""

    def __init__(self, nodes: Cluster, fleet: Fleet, load: Load, submitting: asyncio.Task[None]) -> None:
        self.nodes, self.fleet, self.load, self._submitting = nodes, fleet, load, submitting
        self.gaps: dict[str, list[float]] = {}

    async def fail(self, kind: str, act: Callable[[Node], None], repair: Callable[[Node], None] | None = None) -> None:
        """Do it to the leader; wait until another one works, repair, and wait until all nodes are well again."""
        await self.wait(self.nodes.healthy, "all nodes are well")
        leader = self.nodes.leader()
        assert leader is not None
        began, ended = time.monotonic(), self.fleet.ended()
        await asyncio.to_thread(act, leader)
        await self.wait(lambda: self.nodes.leader() not in (None, leader), f"{kind}: another leader")
        await self.progress(began, ended)
        if repair is not None:
            await asyncio.to_thread(repair, leader)
        await self.wait(self.nodes.healthy, f"{kind}: all nodes are well again")
        self.gaps.setdefault(kind, []).append(self.load.longest_gap(began))

    async def progress(self, since: float, ended: int) -> None:
        """Until jobs are acknowledged, and others ended, after the failure."""
        so_far = len(self.load.acknowledged)
        await self.wait(lambda: len(self.load.acknowledged) > so_far + 2 * SUBMITTERS, "submits are acknowledged")
        await soon(lambda: self.fleet.ended() > ended + 2 * SUBMITTERS, "jobs end again")

    async def etcd_down(self) -> None:
        """Without etcd no node may stay primary; with it again, one of them is."""
        began, ended = time.monotonic(), self.fleet.ended()
        await asyncio.to_thread(self.nodes.stop_etcd)
        await self.wait(lambda: self.nodes.leader() is None, "the primary steps down")
        await asyncio.to_thread(self.nodes.start_etcd)
        await self.wait(self.nodes.healthy, "all nodes are well again")
        await self.progress(began, ended)
        self.gaps["etcd down"] = [self.load.longest_gap(began)]

    async def wait(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> bool:
            if self._submitting.done():
                self._submitting.result()
            return self.fleet.alive() and bool(condition())

        await asyncio.to_thread(self.nodes.wait, holds, what, 120.0)


async def under_load(folder: Path, acts: Callable[[Drill], Awaitable[None]]) -> None:
    with cluster() as nodes:
        await migrated(nodes.url)
        with fleet_on(folder, nodes.url) as fleet:
            for _ in range(2):
                fleet.start(lease=LEASE_SECONDS, slots=32)
            await soon(fleet.ready, "every worker has introduced itself")
            load = Load(nodes.url)
            submitting = asyncio.create_task(load.run())
            drill = Drill(nodes, fleet, load, submitting)
            began = time.monotonic()
            try:
                await drill.wait(lambda: len(load.acknowledged) > JOBS_PER_SECOND, "the load runs")
                await acts(drill)
            finally:
                load.stopping = True
            await submitting
            rate = len(load.acknowledged) / (time.monotonic() - began)
            await soon(fleet.drained, "everything is done", 120)
            lost = {job_id for _, job_id in load.acknowledged} - fleet.ids()
            assert not lost, f"{len(lost)} acknowledged and lost"
            print(f"\n{len(load.acknowledged)} acknowledged ({rate:.0f} a second), {await fleet.check()}")
            for kind, gaps in drill.gaps.items():
                p99 = quantiles(gaps, n=100, method="inclusive")[98] if len(gaps) > 1 else gaps[0]
                each = [round(gap, 1) for gap in gaps]
                print(f"{kind}: {len(gaps)} times, gap p50 {median(gaps):.1f} s, p99 {p99:.1f} s, each {each}")


async def test_switchovers_and_kills(tmp_path: Path) -> None:
    async def acts(drill: Drill) -> None:
        for _ in range(ROUNDS):
            await drill.fail("switchover", lambda _: drill.nodes.switch_over())
            await drill.fail("kill -9 of the primary", Node.kill_postgres)

    await under_load(tmp_path, acts)


async def test_a_lost_host_a_partition_and_etcd_down(tmp_path: Path) -> None:
    """Patroni waits for the leader key to expire (ttl, 20 s) before another node takes over."""

    async def acts(drill: Drill) -> None:
        await drill.fail("lost host", Node.kill, Node.start)
        await drill.fail("partitioned primary", Node.cut_off, Node.reconnect)
        await drill.etcd_down()

    await under_load(tmp_path, acts)
