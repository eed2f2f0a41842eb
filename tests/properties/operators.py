"""The rest of the machine: batches, leases, time, and what people do to jobs and dead letters from outside."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from detent.core.access import Scope
from detent.core.errors import DetentError
from detent.core.outcome import Succeeded
from detent.core.times import SECOND
from detent.engine import Settlement

from .machine import CODES, PAUSABLE, Machine, names, number, outcomes, tokens
from .model import FACTS, Row, after_loss

LEGAL = {"abort": "aborts", "reopen": "reopens", "approve": "approvals", "reject": "approvals"}
"""act -> the fact that names the statuses it is legal in"""
people = st.sampled_from(["ann", "bob"])


class OperatedMachine(Machine):
    @rule(settlements=st.lists(st.tuples(number, tokens, outcomes), max_size=4), limit=st.sampled_from([0, 1, 10]))
    def settle_and_claim(self, settlements: list[Any], limit: int) -> None:
        """Settle a batch and claim the next, in one commit: each settlement is judged by itself."""
        rows = {}
        for pick, kind, outcome in settlements:
            row = self.job(pick, *(facts.running for facts in FACTS.values()))
            if row:
                token = self.token(row, kind, pick)
                rows[row["id"]] = (row, Settlement(row["id"], token, row["contract"], outcome))
        before = self.seen
        types = {"a", "b"} - {row["job_type"] for row, _ in rows.values()}  # so that no job is settled and claimed
        request = self.engine.claim_request("a", limit, 30.0, job_types=frozenset(types)) if limit else None
        answer = self.act(self.engine.settle_and_claim([settlement for _, settlement in rows.values()], request))
        assert not isinstance(answer, DetentError) and len(answer.claimed) <= limit
        self.take(before, answer.claimed, "a")
        for job_id, (row, settlement) in rows.items():
            self.expect_settled(row, settlement.token, settlement.outcome, answer.refused.get(job_id))

    @precondition(lambda self: self.held())
    @rule(pick=number, outcome=outcomes, stale=st.booleans())
    def cycle_doubled(self, pick: int, outcome: Any, stale: bool) -> None:
        """One batch brings a job's settlement twice, or together with one that is stale."""
        row = self.held()[pick % len(self.held())]
        outcome = Succeeded(None) if stale else outcome
        good = Settlement(row["id"], row["token"], row["contract"], outcome)
        other = Settlement(row["id"], "bogus", row["contract"], Succeeded('{"n":2}')) if stale else good
        answer = self.act(self.engine.settle_and_claim([other, good], None))
        assert not isinstance(answer, DetentError), f"{answer!r} for the whole batch"
        self.expect_settled(row, row["token"], outcome, None if stale else answer.refused.get(row["id"]))

    @precondition(lambda self: self.seen.jobs)
    @rule(picks=st.lists(st.tuples(number, tokens), min_size=1, max_size=4), seconds=st.sampled_from([5.0, 60.0]))
    def extend(self, picks: list[tuple[int, str]], seconds: float) -> None:
        held = {}
        for pick, kind in picks:
            row = self.job(pick)
            assert row
            held[row["id"]] = self.token(row, kind, pick)
        before = self.seen
        lost = self.act(self.engine.extend(held, seconds)).lost
        for job_id, token in held.items():
            old, new = before.jobs[job_id], self.seen.jobs[job_id]
            stands = old["phase"] == "leased" and old["token"] == token
            assert (job_id in lost) == (not stands)
            if stands:
                assert (job_id, token) not in self.refused, "a refused token worked again"
                wanted = max(old["lease_until"], self.clock.now() + int(seconds * SECOND))
                assert new == {**old, "lease_until": wanted}
            else:
                assert new == old
                self.refused.add((job_id, token))

    @rule(seconds=st.sampled_from([0.5, 2, 6, 12, 31, 61, 400, -3]), expire=st.booleans(), wake=st.booleans())
    def time_passes(self, seconds: float, expire: bool, wake: bool) -> None:
        self.clock.advance(seconds)
        if expire:
            self.expire()
        if wake:
            self.wake()

    def expire(self) -> None:
        before = self.seen
        answer = self.act(self.engine.expire())
        lost = [row for row in before.jobs.values() if self.lease_is_over(row) and row["contract"] != "streams"]
        assert {job.id for job in answer} == {row["id"] for row in lost}
        for row in lost:
            assert self.seen.jobs[row["id"]]["status"] == after_loss(row)
        untouched = self.seen.jobs.keys() - {row["id"] for row in lost}
        assert all(self.seen.dump(job_id) == before.dump(job_id) for job_id in untouched)

    def wake(self) -> None:
        before, now = self.seen, self.clock.now()
        answer = self.act(self.engine.wake())
        due = {r["id"] for r in before.jobs.values() if r["phase"] == "blocked" and (r["due_at"] or now + 1) <= now}
        assert {job.id for job in answer} == due
        for job_id in due:
            assert self.seen.jobs[job_id]["status"] == self.facts(before.jobs[job_id]).again
        assert all(self.seen.dump(i) == before.dump(i) for i in self.seen.jobs.keys() - due)

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=number, name=names, doubled=st.booleans())
    def signal(self, pick: int, name: str, doubled: bool) -> None:
        row = self.job(pick, "waiting", "parked", "Waiting") if doubled else self.job(pick)
        assert row
        known = (row["id"], name) in self.seen.signals
        answer = self.act(self.engine.jobs.signal(row["id"], name, Scope("ann"), {"n": 1}))
        facts, now = self.facts(row), self.seen.jobs[row["id"]]
        if not facts.waits:
            assert answer.code == "CONTRACT_LACKS_MOVE"
        elif known:
            assert answer[1] is False and now == row
        elif row["phase"] == "final":
            assert answer.code == "JOB_FINAL"
        elif row["contract"] == "formal" and row["phase"] == "blocked" and row["wait_name"] != name:
            assert answer.code == "SIGNAL_KEY_MISMATCH" and answer.http_status == 400
        else:
            woken = row["phase"] == "blocked" and row["wait_name"] == name
            assert (row["id"], name) in self.seen.signals, "the signal was not kept"
            assert answer[1] is True and now["status"] == (facts.again if woken else row["status"])
        if doubled:
            before = self.seen.dumps()
            self.act(self.engine.jobs.signal(row["id"], name, Scope("bob"), {"n": 2}))
            assert self.seen.dumps() == before

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=number, force=st.booleans(), actor=people)
    def cancel(self, pick: int, force: bool, actor: str) -> None:
        row = self.job(pick)
        assert row
        facts = self.facts(row)
        answer = self.act(self.engine.jobs.cancel(row["id"], Scope(actor, "no need"), force=force))
        now = self.seen.jobs[row["id"]]
        if row["status"] in facts.requests and not force:
            assert now["cancel_requested"] and now["status"] == row["status"] and now["version"] == row["version"]
        elif row["status"] in facts.cancels:
            assert now["status"] == facts.cancelled and now["version"] == row["version"] + 1
        else:
            self.expect_illegal(row, answer)

    def expect_illegal(self, row: Row, answer: Any) -> None:
        assert isinstance(answer, DetentError) and answer.code == CODES[row["contract"]], repr(answer)
        assert answer.http_status == 409

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=number, act=st.sampled_from(sorted(LEGAL)), aim=st.booleans())
    def operate(self, pick: int, act: str, aim: bool) -> None:
        rows = list(self.seen.jobs.values())
        legal = [(act, row) for act in LEGAL for row in rows if row["status"] in getattr(self.facts(row), LEGAL[act])]
        row = rows[pick % len(rows)]
        if aim and legal:
            act, row = legal[pick % len(legal)]
        facts = self.facts(row)
        service = self.engine.approvals if act in ("approve", "reject") else self.engine.jobs
        answer = self.act(getattr(service, act)(row["id"], Scope("ann", "because")))
        if row["status"] in getattr(facts, LEGAL[act]):
            ends = facts.given_up if act in ("abort", "reject") else facts.again
            assert self.seen.jobs[row["id"]]["status"] == ends
        else:
            self.expect_illegal(row, answer)

    @precondition(lambda self: self.seen.dead_letters)
    @rule(pick=number, actor=people)
    def requeue(self, pick: int, actor: str) -> None:
        item = self.dead_letter(pick)
        answer = self.act(self.engine.dead_letters.requeue(item["id"], Scope(actor, "again")))
        if item["status"] != "open":
            assert answer.code == "DLQ_REQUEUE_CONFLICT" and answer.http_status == 409
            return
        new, old = self.seen.jobs[answer.job.id], self.seen.jobs[item["job_id"]]
        assert new["requeued_from"] == item["id"] and new["effect_root"] == old["effect_root"]
        assert (new["payload"], new["version"], new["failures"], new["execution_no"]) == (old["payload"], 1, 0, 0)
        assert new["status"] == self.facts(new).again
        kept = new["idempotency_key"] is not None and new["idempotency_key"] == old["idempotency_key"]
        assert kept == (old["contract"] == "streams")
        now = self.seen.dead_letters[item["id"]]
        assert (now["status"], now["requeued_as"]) == ("requeued", new["id"])

    @precondition(lambda self: self.seen.dead_letters)
    @rule(
        pick=number,
        words=st.lists(st.tuples(people, st.sampled_from(["too old", "too old", " ", None])), min_size=1, max_size=3),
    )
    def discard(self, pick: int, words: list[tuple[str, str | None]]) -> None:
        for person, reason in words:
            self.discard_once(self.dead_letter(pick), person, reason)

    def discard_once(self, item: Row, person: str, reason: str | None) -> None:
        answer = self.act(self.engine.dead_letters.discard(item["id"], Scope(person, reason)))
        now = self.seen.dead_letters[item["id"]]
        if item["status"] != "open":
            assert answer.code == "DLQ_DISCARD_CONFLICT"
        elif not (reason or "").strip() or item["proposed_by"] == person:
            assert answer.code == "APPROVAL_REQUIRED" and answer.http_status == 400 and now == item
        elif item["contract"] == "streams" or item["proposed_by"]:
            assert answer.confirmed and now["status"] == "discarded"
        else:
            assert not answer.confirmed and (now["status"], now["proposed_by"]) == ("open", person)

    def dead_letter(self, pick: int) -> Row:
        dead_letters = list(self.seen.dead_letters.values())
        return dead_letters[pick % len(dead_letters)]

    @rule(kind=st.sampled_from(sorted(PAUSABLE)), name=names)
    def pause_or_resume(self, kind: str, name: str) -> None:
        """One pause at a time, or nothing would ever run."""
        if self.paused:
            (pause,) = self.paused
            self.act(self.engine.limits.resume(*pause, Scope("ann")))
            self.paused.clear()
        else:
            self.act(self.engine.limits.pause(kind, name, Scope("ann")))
            self.paused.add((kind, name))
