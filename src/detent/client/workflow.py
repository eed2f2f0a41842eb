"""Workflow: a graph of jobs, run as one parent job with a child job for each node."""

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
"""Node names; or a mapping {argument: node}, if an argument has another name than the node whose result it gets."""


class WorkflowInvalid(DetentError, code="WORKFLOW_INVALID", http_status=422):
    """A workflow cannot run: it has a cycle, an unknown node, two nodes of one name, or an unknown argument."""


@dataclass(frozen=True, slots=True)
class Node:
    """A job in the graph."""

    name: str
    job: JobDefinition[Any, Any]
    after: tuple[str, ...]
    """The nodes that must end before this one starts."""
    inputs: Mapping[str, str]
    """Argument name -> the node whose result it gets."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are the same in every run."""


class Workflow:
    """A graph of jobs. Declare nodes with `@flow.node` or `add`, then enqueue it; its result is {node: result}.

        flow = Workflow(app, "report")

        @flow.node()
        async def extract(day: str) -> list[int]: ...

        @flow.node(after="extract")
        async def total(extract: list[int]) -> int: ...

        handle = await flow.enqueue(day="2026-02-25")

    A node starts as soon as the nodes in its `after` have ended. Its arguments come, by name, from its fixed
    `arguments`, from the results of the nodes in `after`, and from what the workflow was enqueued with. A failed node
    fails the workflow with its own error code, and the other nodes are cancelled.
    """

    def __init__(self, app: Detent, name: str, **options: Any) -> None:
        """name: the job type of the workflow's parent job. options: those of `app.job` for this job."""
        self.app = app
        self.name = name
        self.nodes: dict[str, Node] = {}
        self.job = app.job(name, **options)(self._handler())

    def add(
        self, name: str, job: JobDefinition[Any, Any], *, after: After = (), arguments: Mapping[str, Any] | None = None
    ) -> Node:
        """Add a declared job as a node.

        after: the node or nodes that must end first, or {argument: node} if an argument has another name than its node.
        arguments: fixed arguments of this node.

        Raises WorkflowInvalid for a name that exists, a cycle, or an argument that the job does not have.

            flow.add("mail", send_mail, after={"figure": "total"}, arguments={"to": "ann"})
        """
        check_name(name, "node name")
        if name in self.nodes:
            raise WorkflowInvalid(f"workflow {self.name} has two nodes {name!r}; use another name")
        names = [after] if isinstance(after, str) else after
        inputs = dict(names) if isinstance(names, Mapping) else {node: node for node in names}
        if isinstance(after, Mapping) and not job.handler.free_form:
            unknown = [argument for argument in inputs if argument not in job.handler.parameters]
            if unknown:
                raise WorkflowInvalid(f"node {name!r}: {job.name} has no argument {', '.join(unknown)}")
        node = Node(name, job, tuple(dict.fromkeys(inputs.values())), inputs, dict(arguments or {}))
        cycle = _cycle({**{other.name: other.after for other in self.nodes.values()}, name: node.after}, name)
        if cycle:
            raise WorkflowInvalid(f"workflow {self.name} has a cycle: {' -> '.join(cycle)}; remove one of these edges")
        self.nodes[name] = node
        return node

    def node(
        self, name: str | None = None, *, after: After = (), arguments: Mapping[str, Any] | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], JobDefinition[Any, Any]]:
        """Declare a function as a job and add it as a node. The job type is "<workflow>.<node>".

        name: of the node. Default: that of the function. after, arguments: as in `add`. options: those of `app.job`.
        """

        def declare(function: Callable[..., Any]) -> JobDefinition[Any, Any]:
            node_name = name or function.__name__
            job: JobDefinition[Any, Any] = self.app.job(f"{self.name}.{node_name}", **options)(function)
            self.add(node_name, job, after=after, arguments=arguments)
            return job

        return declare

    def check(self) -> None:
        """Raise WorkflowInvalid if a node in an `after` does not exist. Cycles are refused by `add`."""
        for node in self.nodes.values():
            missing = [name for name in node.after if name not in self.nodes]
            if missing:
                names = ", ".join(missing)
                raise WorkflowInvalid(
                    f"node {node.name!r} of workflow {self.name} comes after {names}, which does not exist; add it"
                )

    def using(self, **options: Any) -> JobDefinition[Any, Any]:
        """The workflow's job with other options for the next enqueue; see `JobDefinition.using`."""
        self.check()
        return self.job.using(**options)

    async def enqueue(self, **arguments: Any) -> Handle[dict[str, Any]]:
        """Enqueue one run of the workflow with these arguments, which nodes can take by name.

        Raises WorkflowInvalid, and what `JobDefinition.enqueue` raises. The result is {node: result}.
        """
        self.check()
        return await self.job.enqueue(**arguments)

    def enqueue_sync(self, **arguments: Any) -> SyncHandle[dict[str, Any]]:
        """Enqueue one run of the workflow, for callers without an event loop."""
        self.check()
        return self.app.sync.enqueue(self.job, **arguments)

    def _handler(self) -> Callable[..., Any]:
        async def run(ctx: Context, **arguments: Any) -> dict[str, Any]:
            self.check()
            return await _Run(self, ctx, arguments).run()

        run.__doc__ = f"The workflow {self.name}."
        return run


def _cycle(after: Mapping[str, Sequence[str]], start: str) -> list[str]:
    """A path from the node back to itself, or an empty list."""
    paths = [[start, name] for name in after[start]]
    visited: set[str] = set()
    while paths:
        path = paths.pop()
        if path[-1] == start:
            return path[::-1]
        if path[-1] not in visited:
            visited.add(path[-1])
            paths += [[*path, name] for name in after.get(path[-1], ())]
    return []


class _Run:
    """One execution of a workflow: starts nodes whose inputs are complete, until all have ended or one has failed."""

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
                new_nodes = [node for name, node in nodes.items() if name not in self.children]
                ready = [node for node in new_nodes if self.results.keys() >= set(node.after)]
                self.children |= {node.name: self._create_child(node) for node in ready}
                await self.ctx.children.send(self.children.values())
                seen = {self.children[name].id for name in self.results}
                ended = await self.ctx.children.wait_any(list(self.children.values()), seen)
                self.results = {name: ended[child.id] for name, child in self.children.items() if child.id in ended}
        except ChildFailed as failed:
            await self.ctx.children.cancel(self.children.values(), f"node {failed.name!r} failed")
            cause = failed.error_message or f"it ended as {failed.status}"
            raise Fail(f"node {failed.name!r} failed: {cause}", code=failed.error_code or failed.code) from failed
        return {name: self.results[name] for name in nodes}

    def _create_child(self, node: Node) -> Child[Any]:
        handler = node.job.handler
        inputs = {argument: self.results[name] for argument, name in node.inputs.items()}
        values = {**self.arguments, **inputs, **node.fixed}
        if not handler.free_form:
            values = {name: values[name] for name in handler.parameters if name in values}
        try:
            payload = handler.payload((), values)
        except InvalidInput as error:
            raise Fail(f"node {node.name!r}: {error.message}", code=error.code) from error
        return self.ctx.children.create(node.job, payload, name=node.name, after=node.after)
