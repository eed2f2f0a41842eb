"""Workflows: invalid graphs are refused; nodes run as soon as the nodes they depend on have ended."""

import asyncio
from typing import Any

import pytest

from detent import Context, Detent, Fail, JobFailed, Workflow, WorkflowInvalid
from detent.core.contract.model import Phase
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio


def report(app: Detent, seen: list[str]) -> Workflow:
    flow = Workflow(app, "report")

    @flow.node()
    async def extract(day: str) -> list[int]:
        seen.append("extract")
        return [1, 2, 3]

    @flow.node(after="extract")
    async def total(extract: list[int]) -> int:
        seen.append("total")
        return sum(extract)

    @flow.node(after="extract")
    async def count(ctx: Context, extract: list[int]) -> int:
        seen.append("count")
        return len(extract)

    @flow.node(after={"sum_": "total", "n": "count"}, arguments={"digits": 1})
    def mean(sum_: int, n: int, digits: int, day: str) -> str:
        seen.append("mean")
        return f"{day}: {sum_ / n:.{digits}f}"

    return flow


async def test_results_are_passed_along_the_graph(app: Detent) -> None:
    seen: list[str] = []
    flow = report(app, seen)
    async with working(app):
        handle = await flow.enqueue(day="monday")
        result = await handle.result(30)
    assert result == {"extract": [1, 2, 3], "total": 6, "count": 3, "mean": "monday: 2.0"}
    assert seen[0] == "extract" and seen[-1] == "mean" and sorted(seen[1:3]) == ["count", "total"]
    root = await app.engine.jobs.tree(handle.id)
    assert [(child.name, child.after) for child in root.children] == [
        *(("extract", []), ("total", ["extract"]), ("count", ["extract"]), ("mean", ["total", "count"])),
    ]


async def test_a_node_starts_as_soon_as_its_dependencies_have_ended(app: Detent) -> None:
    gate = asyncio.Event()
    flow = Workflow(app, "uneven")

    @flow.node()
    async def slow() -> None:
        await gate.wait()

    @flow.node()
    async def quick() -> int:
        return 1

    @flow.node(after=["quick"])
    async def opens(quick: int) -> None:
        gate.set()

    async with working(app):
        await (await flow.enqueue()).result(30)


async def test_a_failed_node_fails_the_workflow_and_cancels_the_others(app: Detent) -> None:
    flow = Workflow(app, "fragile")

    @flow.node()
    async def waits(ctx: Context) -> None:
        await ctx.wait_for("never")

    @flow.node()
    async def breaks() -> None:
        raise Fail("no such table", code="NO_TABLE")

    @flow.node(after=["waits", "breaks"])
    async def never() -> None: ...

    async with working(app):
        handle = await flow.enqueue()
        with pytest.raises(JobFailed, match="node 'breaks' failed: no such table") as failed:
            await handle.result(30)
        assert failed.value.extra["job_code"] == "NO_TABLE"

        async def ended() -> Any:
            children = await app.engine.store.read(lambda tx: tx.children.list_children(handle.id))
            return {child.job_type: child for child in children if child.phase is Phase.FINAL}

        children = await until(lambda: _both(ended))
    assert children["fragile.waits"].status == "cancelled"
    assert "fragile.never" not in children


async def _both(ended: Any) -> Any:
    children = await ended()
    return children if len(children) == 2 else None


async def test_invalid_graphs_are_refused(app: Detent) -> None:
    flow = Workflow(app, "bad")

    @app.job("noop")
    async def noop() -> None: ...

    flow.add("a", noop, after=["b"])
    with pytest.raises(WorkflowInvalid, match="comes after b, which does not exist"):
        await flow.enqueue()
    with pytest.raises(WorkflowInvalid, match="cycle: b -> a -> b"):
        flow.add("b", noop, after=["a"])
    with pytest.raises(WorkflowInvalid, match="cycle: c -> c"):
        flow.add("c", noop, after=["c"])
    with pytest.raises(WorkflowInvalid, match="two nodes 'a'"):
        flow.add("a", noop)
    with pytest.raises(WorkflowInvalid, match="no argument rows"):
        flow.add("d", noop, after={"rows": "a"})


async def test_an_argument_that_does_not_fit_fails_the_workflow(app: Detent) -> None:
    flow = Workflow(app, "misfit")

    @flow.node()
    async def needs(number: int) -> int:
        return number

    async with working(app):
        with pytest.raises(JobFailed, match="node 'needs'") as failed:
            await (await flow.enqueue(number="seven")).result(30)
    assert failed.value.extra["job_code"] == "PAYLOAD_INVALID"
