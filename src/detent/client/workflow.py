"""Workflow: named nodes and what each comes after, run as a parent job with one child a node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.core.errors import DetentError, InvalidInput
from detent.engine.submit.submission import check_name
from detent.handler.children import Child, ChildFailed
from detent.handler.context import Context
from detent.handler.outcomes import Fail

from .app import Detent
from .handles import Handle
from .job import JobDefinition
from .sync import SyncHandle

After = str | Sequence[str] | Mapping[str, str]
"""Names of nodes; as a mapping {argument: node}, where the argument is not called like the node."""


class WorkflowInvalid(DetentError):
    """The graph cannot be run: it goes in a circle, or names a node that is not there."""

    code = "WORKFLOW_INVALID"
    http_status = 422


@dataclass(frozen=True, slots=True)
class Node:
    """A job in the graph. `feeds`: which argument gets which node's result."""

    name: str
    job: JobDefinition[Any, Any]
    after: tuple[str, ...]
    feeds: Mapping[str, str]
    fixed: Mapping[str, Any] = field(default_factory=dict)


class Workflow:
    """A graph of jobs. Declare nodes with `add` or `@node`, then enqueue it like a job; its result is {node: result}.

    A node's arguments are, by name: what was fixed for it, the results of the nodes it comes after, and what the
    workflow was enqueued with.
    """

    def __init__(self, app: Detent, name: str, **options: Any) -> None:
        self.app = app
        self.name = name
        self.nodes: dict[str, Node] = {}
        self.job = app.job(name, **options)(self._handler())

    def add(
        self, name: str, job: JobDefinition[Any, Any], *, after: After = (), arguments: Mapping[str, Any] | None = None
    ) -> Node:
        """A node that runs a declared job. arguments: fixed ones."""
        check_name(name, "node name")
        if name in self.nodes:
            raise WorkflowInvalid(f"workflow {self.name} has two nodes {name!r}; names are unique")
        feeds = dict(after) if isinstance(after, Mapping) else {one: one for one in _names(after)}
        taken = set(job.handler.parameters)
        if isinstance(after, Mapping):
            unknown = [argument for argument in feeds if argument not in taken and not job.handler.free_form]
            if unknown:
                raise WorkflowInvalid(f"node {name!r}: {job.name} has no argument {', '.join(unknown)}")
        node = Node(name, job, tuple(dict.fromkeys(feeds.values())), feeds, dict(arguments or {}))
        circle = _circle({**{one.name: one.after for one in self.nodes.values()}, name: node.after}, name)
        if circle:
            raise WorkflowInvalid(f"workflow {self.name} goes in a circle: {' -> '.join(circle)}; break it somewhere")
        self.nodes[name] = node
        return node

    def node(
        self, name: str | None = None, *, after: After = (), arguments: Mapping[str, Any] | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], JobDefinition[Any, Any]]:
        """Declare a function as a job of this workflow and add it as a node of that name."""

        def declare(function: Callable[..., Any]) -> JobDefinition[Any, Any]:
            own = name or function.__name__
            job: JobDefinition[Any, Any] = self.app.job(f"{self.name}.{own}", **options)(function)
            self.add(own, job, after=after, arguments=arguments)
            return job

        return declare

    def check(self) -> None:
        """Every node that is named is there. Circles are refused as they are declared."""
        for node in self.nodes.values():
            missing = [name for name in node.after if name not in self.nodes]
            if missing:
                told = (
                    f"node {node.name!r} of workflow {self.name} comes after {', '.join(missing)}, which is not there"
                )
                raise WorkflowInvalid(told)

    def using(self, **options: Any) -> JobDefinition[Any, Any]:
        """The workflow's job with other options, as of any job."""
        self.check()
        return self.job.using(**options)

    async def enqueue(self, **arguments: Any) -> Handle[dict[str, Any]]:
        self.check()
        return await self.job.enqueue(**arguments)

    def enqueue_sync(self, **arguments: Any) -> SyncHandle[dict[str, Any]]:
        self.check()
        return self.app.sync.enqueue(self.job, **arguments)

    def _handler(self) -> Callable[..., Any]:
        async def run(ctx: Context, **arguments: Any) -> dict[str, Any]:
            self.check()
            return await _Run(self, ctx, arguments).run()

        run.__doc__ = f"The workflow {self.name}."
        return run


def _names(after: str | Sequence[str]) -> Sequence[str]:
    return [after] if isinstance(after, str) else list(after)


def _circle(after: Mapping[str, Sequence[str]], start: str) -> list[str]:
    """A way from the node back to itself, or nothing."""
    ways = [[start, name] for name in after[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == start:
            return way[::-1]
        if way[-1] not in seen:
            seen.add(way[-1])
            ways += [[*way, name] for name in after.get(way[-1], ())]
    return []


class _Run:
    """One execution: what has ended feeds what comes after it, until all has ended or one has failed."""

    def __init__(self, workflow: Workflow, ctx: Context, arguments: Mapping[str, Any]) -> None:
        self.workflow = workflow
        self.ctx = ctx
        self.arguments = arguments
        self.children: dict[str, Child[Any]] = {}
        self.results: dict[str, Any] = {}

    async def run(self) -> dict[str, Any]:
        nodes = self.workflow.nodes
        try:
            while len(self.results) < len(nodes):
                ready = [node for name, node in nodes.items() if name not in self.children and self._may_start(node)]
                self.children |= {node.name: self._call(node) for node in ready}
                await self.ctx.family.send(self.children.values())
                known = {self.children[name].id for name in self.results}
                ended = await self.ctx.family.any(list(self.children.values()), known)
                self.results = {name: ended[child.id] for name, child in self.children.items() if child.id in ended}
        except ChildFailed as failed:
            await self.ctx.family.cancel(self.children.values(), f"node {failed.name!r} failed")
            told = failed.error_message or f"it ended as {failed.status}"
            raise Fail(f"node {failed.name!r} failed: {told}", code=failed.error_code or failed.code) from failed
        return {name: self.results[name] for name in nodes}

    def _may_start(self, node: Node) -> bool:
        return all(name in self.results for name in node.after)

    def _call(self, node: Node) -> Child[Any]:
        handler = node.job.handler
        fed = {argument: self.results[name] for argument, name in node.feeds.items()}
        given = {**self.arguments, **fed, **node.fixed}
        wanted = given if handler.free_form else {name: given[name] for name in handler.parameters if name in given}
        try:
            payload = handler.payload((), wanted)
        except InvalidInput as error:
            raise Fail(f"node {node.name!r}: {error.message}", code=error.code) from error
        return self.ctx.family.call(node.job, payload, name=node.name, after=node.after)
