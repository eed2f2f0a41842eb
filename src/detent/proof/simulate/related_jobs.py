"""Invariants between rows: parents and children, approvals and votes, dead letters and the jobs requeued from them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import apsw

from detent.core.access import same_person
from detent.core.approval import APPROVE
from detent.core.child_ids import ANY, END
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Micros
from detent.proof.controlled_store import BrokenRule

from .loop import SECOND

_CANCEL_TIME: Micros = 10 * SECOND
"""Without faults the children of a cancelled job are cancelled, or requested to stop, within this time."""


class RelatedJobsMonitor:
    """Reads the tables that relate jobs to one another, after every commit."""

    def __init__(self, connection: apsw.Connection, contracts: Mapping[str, Contract]) -> None:
        self._connection = connection
        self._contracts = contracts
        self._awaited: dict[str, list[tuple[str, str]]] = {}
        """parent id -> (child id, when it wakes the parent) of each child that has not ended"""
        self._noted: list[Any] = []
        """(parent id, child id, whether it failed) of each end of a child that has not been processed"""
        self.closed: dict[str, tuple[str, str | None]] = {}
        """dead letter id -> (status, id of the new job), of those that are not open any more"""

    def check_commit(self) -> Iterator[BrokenRule]:
        for parent_id, child_id in self._connection.execute(_MISSED, (str(Phase.FINAL), str(Phase.BLOCKED))):
            yield parent_id, "child.missed", f"waits for {child_id}, which has ended without a notification"
        awaited = defaultdict(list)
        for parent_id, *child in self._connection.execute(_AWAITED):
            awaited[parent_id].append((child[0], child[1]))
        self._awaited = awaited
        self._noted = self._connection.execute(_CHILD_EVENTS).fetchall()
        yield from self._check_dead_letters()
        yield from self._check_approvals()

    def check_wake(self, parent_id: str) -> Iterator[BrokenRule]:
        """A parent that waited for its children is not woken before they have ended. Called before `check_commit`.

        An operator may have reopened a child between its end and the wake; the handler then waits for it again.
        """
        ended = {child: not failed for parent, child, failed in self._noted if parent == parent_id}
        ended |= dict(self._ended_children(parent_id))
        for child_id, wakes_on in self._awaited.get(parent_id, ()):
            enough = wakes_on == ANY or (wakes_on != END and not all(ended.values()))
            if child_id not in ended and not enough:
                yield parent_id, "parent.early", f"it was woken although its child {child_id} has not ended"

    def _ended_children(self, parent_id: str) -> Iterator[tuple[str, bool]]:
        for child_id, contract, status in self._connection.execute(_ENDED, (parent_id, str(Phase.FINAL))):
            yield child_id, self._contracts[contract].succeeded(status)

    def _check_dead_letters(self) -> Iterator[BrokenRule]:
        """A dead letter is requeued or discarded once."""
        for dlq_id, job_id, status, new_id in self._connection.execute(_CLOSED):
            before = self.closed.setdefault(dlq_id, (status, new_id))
            if before != (status, new_id):
                yield job_id, "dead-letter.twice", f"dead letter {dlq_id} was {before}, it is {(status, new_id)}"

    def _check_approvals(self) -> Iterator[BrokenRule]:
        """One rejection rejects; an approval needs as many different people as its quorum says."""
        votes: dict[tuple[Any, ...], list[tuple[str, bool]]] = defaultdict(list)
        for *approval, person, approved in self._connection.execute(_VOTES):
            votes[tuple(approval)].append((same_person(person), bool(approved)))
        for (job_id, name, quorum, decision), given in votes.items():
            people = {person for person, approved in given if approved}
            rejected = any(not approved for _, approved in given)
            if (decision is None and rejected) or (decision == APPROVE and (rejected or len(people) < quorum)):
                detail = f"{name!r} was decided as {decision} with {given}, its quorum is {quorum}"
                yield job_id, "approval.wrong", detail

    def check_requeued(self, job_id: str) -> Iterator[BrokenRule]:
        """A requeued job has the payload, the options and the effect keys of the job that failed."""
        for new, old in self._connection.execute(_REQUEUED, (job_id,)):
            if new != old:
                yield job_id, "requeue.differs", f"requeued as {new}, the job that failed was {old}"

    def check_child(self, job_id: str) -> Iterator[BrokenRule]:
        """A child belongs to the tenant of its parent."""
        for tenant, parent_tenant in self._connection.execute(_TENANTS, (job_id,)):
            yield job_id, "child.tenant", f"it belongs to {tenant}, its parent to {parent_tenant}"

    def final_check(self, healed_at: Micros) -> Iterator[BrokenRule]:
        """No child of a cancelled job is claimed long after that. healed_at: when the last fault was over."""
        for job_id, at, source, target, *names, cancelled_at in self._connection.execute(_EVENTS_OF_CHILDREN):
            child, parent = (self._contracts[name] for name in names[:2])
            cancelled = names[2] in {edge.target for edge in parent.edges if edge.move is Move.CANCEL}
            claimed = child.phase(target) is Phase.LEASED and child.edge(source, Move.CANCEL)
            if cancelled and claimed and at > max(healed_at, cancelled_at) + _CANCEL_TIME:
                yield job_id, "child.runs", f"it was claimed {at - cancelled_at} µs after its parent was cancelled"


_MISSED = (
    "SELECT a.parent_id, a.child_id FROM detent_awaited a JOIN detent_job_list c ON c.id = a.child_id AND c.phase = ? "
    "JOIN detent_job_list p ON p.id = a.parent_id AND p.phase = ? WHERE NOT EXISTS "
    "(SELECT 1 FROM detent_child_events n WHERE n.parent_id = a.parent_id AND n.child_id = a.child_id)"
)
_AWAITED = "SELECT parent_id, child_id, wakes_on FROM detent_awaited"
_CHILD_EVENTS = "SELECT parent_id, child_id, failed FROM detent_child_events"
_ENDED = "SELECT id, contract, status FROM detent_job_list WHERE parent_id = ? AND phase = ?"
_CLOSED = "SELECT id, job_id, status, requeued_as FROM detent_dead_letters WHERE status <> 'open'"
_VOTES = (
    "SELECT a.job_id, a.name, a.quorum, a.decision, v.person, v.approved FROM detent_votes v"
    " JOIN detent_approvals a ON a.job_id = v.job_id AND a.name = v.name WHERE NOT a.expired"
)
_COPIED = ("job_type", "payload", "tenant_id", "priority", "timeout_ms", "max_retries")
_TENANTS = (
    "SELECT c.tenant_id, p.tenant_id FROM detent_job_list c JOIN detent_job_list p ON p.id = c.parent_id"
    " WHERE c.id = ? AND c.tenant_id <> p.tenant_id"
)
_REQUEUED = (
    f"SELECT json_array({', '.join(f'n.{name}' for name in _COPIED)}, n.effect_root),"
    f" json_array({', '.join(f'o.{name}' for name in _COPIED)}, coalesce(o.effect_root, o.id))"
    " FROM detent_job_list n JOIN detent_dead_letters d ON d.id = n.requeued_from"
    " JOIN detent_job_list o ON o.id = d.job_id WHERE n.id = ?"
)
_EVENTS_OF_CHILDREN = (
    "SELECT e.job_id, e.at, e.source, e.target, c.contract, p.contract, p.status, p.finished_at FROM detent_job_list c"
    " JOIN detent_job_list p ON p.id = c.parent_id AND p.phase = 'final'"
    " JOIN detent_event_list e ON e.job_id = c.id AND e.source IS NOT NULL AND e.at > p.finished_at"
)
