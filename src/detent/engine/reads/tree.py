"""A job with its family, as deep as it goes, for people who want to see it: names, order, where everyone stands."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.core.job import Job
from detent.engine.refusal import find
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

SHOWN = 30
"""Children of one job that are shown one by one; of more, how many stand where."""
DEPTH = 8
ENQUEUED = "children.enqueued"


@dataclass(slots=True)
class Branch:
    """One job of the tree. name: what its parent calls it, after: whom it comes after there."""

    job: Job
    name: str
    after: list[str] = field(default_factory=list)
    children: list["Branch"] = field(default_factory=list)
    crowd: list[tuple[str, str, int]] = field(default_factory=list)
    """Children that are too many to show: (job type, status, how many)."""

    def as_dict(self) -> dict[str, Any]:
        job = self.job
        return {
            "id": job.id,
            "name": self.name,
            "job_type": job.job_type,
            "status": job.status,
            "phase": str(job.phase),
            "error_code": job.error_code,
            "after": self.after,
            "children": [child.as_dict() for child in self.children],
            "counts": [{"job_type": kind, "status": status, "count": n} for kind, status, n in self.crowd],
        }


async def tree(engine: "Engine", job_id: str, tenant: str | None = None) -> Branch:
    async def act(tx: Tx) -> Branch:
        job = await find(tx, job_id, tenant)
        return await _branch(tx, job, job.job_type, [], DEPTH)

    return await engine.store.read(act)


async def _branch(tx: Tx, job: Job, name: str, after: list[str], depth: int) -> Branch:
    branch = Branch(job, name, after)
    counts = await tx.count_children(job.id)
    number = sum(count[-1] for count in counts)
    if number > SHOWN or (number and depth <= 1):
        branch.crowd = [(job_type, status, count) for job_type, _, status, _, count in counts]
        return branch
    if not number:
        return branch
    notes = [note.data or {} for note in await tx.notes(job.id) if note.name == ENQUEUED]
    named = {child["id"]: child for data in notes for child in data.get("children", ())}
    children = await tx.children(job.id, limit=SHOWN)
    order = {job_id: place for place, job_id in enumerate(named)}
    for child in sorted(children, key=lambda one: (order.get(one.id, len(order)), one.id)):
        told = named.get(child.id, {})
        shown = told.get("name") or child.job_type
        branch.children.append(await _branch(tx, child, shown, list(told.get("after", ())), depth - 1))
    return branch
