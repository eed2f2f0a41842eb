"""A job with its children and their children as a tree: names, order and statuses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from detent.core.contract.model import Phase
from detent.core.job import Job, Progress
from detent.core.times import columns
from detent.engine.runtime import Runtime
from detent.ports.children import ChildCount, ChildRow
from detent.ports.tx import Tx

MAX_CHILDREN_SHOWN = 30
"""A job with more children than this is shown with their numbers per status instead."""
MAX_DEPTH = 8
_PAGE = 100
_NOTES = 200
ENQUEUED = "children.enqueued"


@dataclass(slots=True)
class JobTree:
    """One job of the tree. name: its name within its parent; after: the names of the siblings it runs after."""

    job: Job
    name: str
    after: list[str] = field(default_factory=list)
    children: list["JobTree"] = field(default_factory=list)
    child_counts: list[tuple[str, str, int]] = field(default_factory=list)
    """Set if there are too many children to show: (job type, status, how many)."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **columns(self.job, "id", "job_type", "status", "phase", "error_code"),
            "name": self.name,
            "after": self.after,
            "children": [child.as_dict() for child in self.children],
            "counts": [{"job_type": kind, "status": status, "count": n} for kind, status, n in self.child_counts],
        }


class NamedChild(NamedTuple):
    """A child, its name within its parent, the names of the siblings it runs after, and its last progress."""

    row: ChildRow
    name: str
    after: list[str]
    progress: Progress | None


async def read_children(
    tx: Tx, runtime: Runtime, job: Job, after: str | None, limit: int, *, phase: str | None, status: str | None
) -> list[NamedChild]:
    rows: list[ChildRow] = []
    while len(rows) < limit:
        page = await tx.children.child_page(job.id, after, limit, phase=phase, status=status)
        rows += [row for row in page if runtime.sees(row)]
        if len(page) < limit:
            break
        after = page[-1].id
    rows = rows[:limit]
    named = await _names_of_children(tx, job)
    running = [row.id for row in rows if row.phase == Phase.LEASED]
    progress = await tx.output.progress_of(running) if running else {}
    return [
        NamedChild(row, child.get("name") or row.job_type, child.get("after", []), progress.get(row.id))
        for row in rows
        for child in [named.get(row.id, {})]
    ]


async def _names_of_children(tx: Tx, job: Job) -> dict[str, dict[str, Any]]:
    """{child id: name, after} in the order in which the parent enqueued them; the newest 200 notes are read."""
    notes = [note.data or {} for _, note in reversed(await tx.log.last_notes(job.id, _NOTES)) if note.name == ENQUEUED]
    return {child["id"]: child for data in notes for child in data.get("children", ())}


async def visible_children(tx: Tx, runtime: Runtime, job_id: str, limit: int) -> tuple[list[Job], list[ChildCount]]:
    """The first children of a job that the caller may see, and how many there are of each kind."""
    counts = [count for count in await tx.children.count_children(job_id) if runtime.sees(count)]
    wanted = min(limit, sum(count.number for count in counts))
    children: list[Job] = []
    after: str | None = None
    while len(children) < wanted:
        page = await tx.children.list_children(job_id, after, _PAGE)
        if not page:
            break
        children += [child for child in page if runtime.sees(child)]
        after = page[-1].id
    return children[:limit], counts


async def read_tree(
    tx: Tx, runtime: Runtime, job: Job, name: str, after: Sequence[str] = (), depth: int = MAX_DEPTH
) -> JobTree:
    node = JobTree(job, name, list(after))
    children, counts = await visible_children(tx, runtime, job.id, MAX_CHILDREN_SHOWN)
    number = sum(count.number for count in counts)
    if number > MAX_CHILDREN_SHOWN or (number and depth <= 1):
        kinds = Counter[tuple[str, str]]()
        for count in counts:
            kinds[count.job_type, count.status] += count.number
        node.child_counts = [(*kind, number) for kind, number in kinds.items()]
        return node
    if not number:
        return node
    named = await _names_of_children(tx, job)
    order = {job_id: place for place, job_id in enumerate(named)}
    for child in sorted(children, key=lambda job: (order.get(job.id, len(order)), job.id)):
        named_child = named.get(child.id, {})
        child_name = named_child.get("name") or child.job_type
        node.children.append(await read_tree(tx, runtime, child, child_name, named_child.get("after", ()), depth - 1))
    return node
