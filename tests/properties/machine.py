"""A machine that calls the engine at random, legally and not, and compares every step with the model."""

from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from detent.core.errors import DetentError, StaleLease
from detent.core.job import Failure, Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.times import SECOND
from detent.engine import Submission
from detent.ports.claims import Claimed

from .model import FACTS, Facts, Row, Snapshot, after_settle, check_job, look, retry_window
from .places import Place

number = st.integers(0, 1_000)
"""Picks one of whatever there is, modulo its count."""
names = st.sampled_from(["a", "b"])
failures = st.builds(
    Failure,
    code=st.sampled_from(["TASK_EXECUTION_FAILED", "TASK_TIMEOUT", "BOOM", "PAYLOAD_INVALID"]),
    message=st.just("it broke"),
    retryable=st.sampled_from([None, None, True, False]),
    after=st.sampled_from([None, None, 0, 7 * SECOND]),
)
waits = st.builds(Wait, name=names, timeout=st.sampled_from([None, 10 * SECOND]), park=st.booleans())
outcomes = st.one_of(
    st.builds(Failed, failures),
    st.builds(Failed, failures),
    st.builds(Failed, failures),
    st.builds(Waits, waits),
    st.builds(Succeeded, st.sampled_from([None, '{"n":1}'])),
    st.builds(Waits, waits),
    st.builds(Snoozed, st.sampled_from([0, 5 * SECOND])),
    st.builds(Cancelled, st.sampled_from([None, "no need"])),
    st.just(Stopped()),
)
PAUSABLE = {"queue": "queue", "job_type": "job_type", "tenant": "tenant_id"}
CODES = {
    "gate-b2": "WF_STATE_TRANSITION_INVALID",
    "men": "TASK_INVALID_TRANSITION",
    "p3c": "RUN_INVALID_TRANSITION",
    "streams": "TASK_TRANSITION_INVALID",
    "formal": "JOB_TRANSITION_INVALID",
    "standard": "JOB_TRANSITION_INVALID",
}
"""What an illegal move is refused with."""
tokens = st.sampled_from(["held", "held", "held", "held", "old", "foreign", "bogus"])


class Machine(RuleBasedStateMachine):
    """One run. `contracts` and `open_place` are set by the subclass that is run."""

    contracts: tuple[str, ...] = ()
    open_place: Callable[[], Place]

    def __init__(self) -> None:
        super().__init__()
        self.place = type(self).open_place()
        self.engine, self.clock = self.place.engine, self.place.clock
        self.seen = Snapshot()
        self.asks: list[tuple[Submission, str]] = []
        self.keys: dict[tuple[Any, ...], str] = {}
        self.tokens: dict[str, list[tuple[str, str]]] = {}
        """job -> (token, worker) of every claim that was handed out, oldest first"""
        self.refused: set[tuple[str, str]] = set()
        self.settled: dict[str, tuple[str, Outcome]] = {}
        self.paused: set[tuple[str, str]] = set()

    def teardown(self) -> None:
        self.place.close()

    def act(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Call, look, and compare; an answer or the refusal. Nothing but DetentError may be raised."""
        before = self.seen
        answer: Any
        try:
            answer = self.place.run(coroutine)
        except DetentError as error:
            answer = error
        self.seen = after = look(self.place)
        if isinstance(answer, DetentError):
            assert after.dumps() == before.dumps() and after.dead_letters == before.dead_letters, (
                f"{answer!r} changed something"
            )
        for job_id in after.jobs:
            assert after.events[job_id][: len(before.events.get(job_id, []))] == before.events.get(job_id, [])
            if job_id not in before.jobs or after.dump(job_id) != before.dump(job_id):
                check_job(after, job_id)
        assert before.jobs.keys() <= after.jobs.keys()
        return answer

    def job(self, pick: int, *statuses: str) -> Row | None:
        """Some job; one in these statuses if there is any."""
        rows = list(self.seen.jobs.values())
        wanted = [row for row in rows if row["status"] in statuses] or rows
        return wanted[pick % len(wanted)] if wanted else None

    def facts(self, row: Row) -> Facts:
        return FACTS[row["contract"]]

    def held(self) -> list[Row]:
        return [row for row in self.seen.jobs.values() if row["phase"] == "leased"]

    @rule(
        pick=number,
        job_type=names,
        queue=names,
        tenant=names,
        key=st.sampled_from([None, None, None, "k1", "k2"]),
        scope=st.sampled_from([None, "s"]),
        delay=st.sampled_from([0, 0, 0, 5, 60]),
        hold=st.sampled_from([False, False, False, True]),
        max_retries=st.sampled_from([None, None, 0, 1]),
        priority=st.sampled_from([0, 0, 5]),
        n=st.sampled_from([0, 0, 1]),
    )
    def submit(self, **options: Any) -> None:
        self.submit_once(**options)

    @initialize(tenants=st.lists(names, min_size=1, max_size=3))
    def submit_some(self, tenants: list[str]) -> None:
        for pick, tenant in enumerate(tenants * len(self.contracts)):
            self.submit_plain(pick, tenant)

    def submit_plain(self, pick: int, tenant: str) -> None:
        plain = {"job_type": "a", "queue": "a", "scope": None, "delay": 0, "max_retries": None, "priority": 0}
        self.submit_once(pick=pick, hold=False, n=0, key=None, tenant=tenant, **plain)

    def submit_once(self, pick: int, hold: bool, n: int, key: str | None, **options: Any) -> None:
        contract = self.contracts[pick % len(self.contracts)]
        facts = FACTS[contract]
        ask = Submission(
            options["job_type"],
            {"n": n},
            contract,
            queue=options["queue"],
            tenant_id=options["tenant"],
            idempotency_key=key,
            idempotency_scope=options["scope"],
            delay=options["delay"],
            max_retries=options["max_retries"],
            priority=options["priority"],
            hold=hold,
            id=self.engine.ids.job(),
        )
        known = len(self.seen.jobs)
        answer = self.act(self.engine.jobs.submit(ask))
        if contract == "gate-b2" and ask.max_retries is not None:
            assert answer.code == "MAX_RETRIES_FROZEN"
        elif hold and not facts.approvals:
            assert answer.code == "CONTRACT_LACKS_MOVE"
        else:
            space = (contract, *(getattr(ask, part) for part in facts.key_scope), key)
            owner = self.seen.jobs.get(self.keys.get(space, "")) if key else None
            if owner:
                self.expect_hit(answer, ask, owner)
            else:
                assert not isinstance(answer, DetentError) and not answer.hit and answer.job.id == ask.id
                self.asks.append((ask, answer.job.id))
                self.keys |= {space: answer.job.id} if key else {}
            assert len(self.seen.jobs) == known + (owner is None)

    def expect_hit(self, answer: Any, ask: Submission, owner: Row) -> None:
        contract = owner["contract"]
        if owner["tenant_id"] != ask.tenant_id:
            assert answer.code == "TENANT_SCOPE_VIOLATION"
        elif contract in ("gate-b2", "standard") and (owner["payload"], owner["job_type"]) != (
            f'{{"n":{(ask.payload or {})["n"]}}}',
            ask.job_type,
        ):
            assert answer.code == "IDEMPOTENCY_CONFLICT"
        elif contract == "men" and ask.max_retries not in (None, owner["max_retries"]):
            assert answer.code == "TASK_DUPLICATE" and answer.extra["conflict_fields"] == ["max_retries"]
        else:
            assert answer.hit and answer.job.id == owner["id"]

    @precondition(lambda self: self.asks)
    @rule(pick=number)
    def submit_again(self, pick: int) -> None:
        """The reply was lost: the same call makes nothing new."""
        ask, job_id = self.asks[pick % len(self.asks)]
        before = self.seen.dumps()
        answer = self.act(self.engine.jobs.submit(ask))
        assert answer.job.id == job_id and self.seen.dumps() == before

    @rule(
        limit=st.sampled_from([10, 2, 2, 1]),
        types=st.sampled_from([None, None, frozenset("a"), frozenset("b")]),
        queues=st.sampled_from([None, None, frozenset("b")]),
        reclaim=st.sampled_from([True, True, False]),
        lease=st.sampled_from([10.0, 30.0]),
        worker=names,
        seconds=st.sampled_from([0, 0, 31]),
    )
    def claim(self, seconds: int, **options: Any) -> None:
        self.clock.advance(seconds)
        self.claim_once(**options)

    @rule(rounds=st.lists(st.tuples(number, outcomes, st.sampled_from([0, 8, 61])), min_size=1, max_size=4))
    def execute(self, rounds: list[tuple[int, Outcome, int]]) -> None:
        """A worker's ordinary rounds; they lead jobs deep into their lives."""
        for pick, outcome, seconds in rounds:
            self.clock.advance(seconds)
            if all(row["phase"] in ("final", "blocked") for row in self.seen.jobs.values()):
                self.submit_plain(pick, "a")
            self.claim_once(10, None, None, True, 30.0, "a")
            if self.held():
                self.settle_once(pick, "held", outcome)

    def claim_once(self, limit: int, types: Any, queues: Any, reclaim: bool, lease: float, worker: str) -> None:
        before = self.seen
        request = self.engine.claim_request(worker, limit, lease, job_types=types, queues=queues, reclaim=reclaim)
        claimed = self.act(self.engine.claim(request))
        assert not isinstance(claimed, DetentError) and len(claimed) <= limit, "more claimed than asked for"
        self.take(before, claimed, worker)
        for job in claimed:
            assert (types is None or job.job_type in types) and (queues is None or job.queue in queues)
        taken = [i for i, row in self.seen.jobs.items() if row["execution_no"] > before.jobs[i]["execution_no"]]
        if len(taken) < limit:
            rows = self.seen.jobs.values()
            left = [r["id"] for r in rows if self.claimable(r, types, queues) and not (taken and r["losses"] >= 2)]
            alone = any(job.suspect for job in claimed)
            left += [
                row["id"]
                for row in rows
                if reclaim and self.reclaimable(row, types, queues) and not (taken and (alone or row["losses"] >= 1))
            ]
            assert not left, f"{left} could be claimed and were not"

    def claimable(self, row: Row, types: Any, queues: Any) -> bool:
        wanted = (types is None or row["job_type"] in types) and (queues is None or row["queue"] in queues)
        return wanted and row["phase"] == "claimable" and row["due_at"] <= self.clock.now() and not self.pauses(row)

    def reclaimable(self, row: Row, types: Any, queues: Any) -> bool:
        wanted = (types is None or row["job_type"] in types) and (queues is None or row["queue"] in queues)
        return wanted and row["contract"] == "streams" and self.lease_is_over(row) and not self.pauses(row)

    def lease_is_over(self, row: Row) -> bool:
        return row["phase"] == "leased" and row["lease_until"] <= self.clock.now()

    def pauses(self, row: Row) -> bool:
        return any((kind, row[column]) in self.paused for kind, column in PAUSABLE.items())

    def take(self, before: Snapshot, claimed: list[Claimed], worker: str) -> None:
        """Note who holds what, and that nobody was handed what he may not have."""
        assert len({job.id for job in claimed}) == len(claimed)
        for job in claimed:
            old, new = before.jobs[job.id], self.seen.jobs[job.id]
            assert (new["phase"], new["token"], new["worker"]) == ("leased", job.token, worker)
            assert (new["execution_no"], new["version"]) == (job.execution_no, job.version)
            if old["phase"] == "leased":
                assert self.lease_is_over(old) and old["contract"] == "streams"
            else:
                assert old["phase"] == "claimable" and old["due_at"] <= self.clock.latest
            assert not self.pauses(old)
            mine = self.tokens.setdefault(job.id, [])
            assert job.token not in [token for token, _ in mine]
            mine.append((job.token, worker))
        for row in self.held():
            assert (row["token"], row["worker"]) == self.tokens[row["id"]][-1], "a holder nobody was told of"

    @rule(pick=number, kind=tokens, outcome=outcomes)
    def settle(self, pick: int, kind: str, outcome: Outcome) -> None:
        self.settle_once(pick, kind, outcome)

    def settle_once(self, pick: int, kind: str, outcome: Outcome) -> None:
        row = self.job(pick, *(facts.running for facts in FACTS.values()) if kind != "old" else ())
        if row:
            token = self.token(row, kind, pick)
            answer = self.act(self.engine.settle(row["id"], token, outcome))
            self.expect_settled(row, token, outcome, answer)

    def token(self, row: Row, kind: str, pick: int) -> str:
        mine = [token for token, _ in self.tokens.get(row["id"], [])]
        other = [token for job_id, all_of in self.tokens.items() if job_id != row["id"] for token, _ in all_of]
        choices = {"held": mine[-1:], "old": mine, "foreign": other}.get(kind) or ["bogus"]
        return choices[pick % len(choices)]

    def expect_settled(self, row: Row, token: str, outcome: Outcome, answer: Any) -> None:
        """`row` is the job before the call."""
        job_id, now = row["id"], self.seen.jobs[row["id"]]
        changed = now["version"] != row["version"]
        if row["phase"] != "leased" or row["token"] != token:
            again = self.settled.get(job_id) == (token, outcome) and row["token"] == token
            assert isinstance(answer, StaleLease) != again, f"{answer!r} to {outcome}"
            assert not changed
            self.refused |= set() if again else {(job_id, token)}
            return
        assert (job_id, token) not in self.refused or not changed, "a refused token worked again"
        status = after_settle(row, outcome, [name for owner, name in self.seen.signals if owner == job_id])
        if status is None:
            assert answer.code == ("RETRY_DELAY_FROZEN" if isinstance(outcome, Failed) else "CONTRACT_LACKS_MOVE")
            return
        assert not isinstance(answer, DetentError) and now["status"] == status, f"{answer!r}, {status} expected"
        if changed:
            self.settled[job_id] = (token, outcome)
        if isinstance(outcome, Succeeded):
            assert now["result"] == outcome.result, "the result of another settlement"
        if isinstance(outcome, Failed) and status == self.facts(row).retry_status and now["retries"] > row["retries"]:
            low, high = retry_window(row, now["retries"])
            if outcome.failure.after is not None:
                low = high = outcome.failure.after
            assert low <= now["due_at"] - now["updated_at"] <= high

    @precondition(lambda self: self.settled)
    @rule(pick=number)
    def settle_again(self, pick: int) -> None:
        """Said twice, done once: the answer is ok as long as nobody took the job since."""
        job_id = sorted(self.settled)[pick % len(self.settled)]
        token, outcome = self.settled[job_id]
        before, row = self.seen.dump(job_id), self.seen.jobs[job_id]
        answer = self.act(self.engine.settle(job_id, token, outcome))
        assert self.seen.dump(job_id) == before
        assert isinstance(answer, StaleLease) == (row["token"] != token)
