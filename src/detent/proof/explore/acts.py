"""What can happen next: every act of every actor from a place, with each call done, half done or not done."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from detent.core.contract.model import Move, Phase
from detent.core.errors import DetentError
from detent.engine import BatchResult, Engine
from detent.ports.claims import Extended
from detent.proof.controlled_store import Hooks
from detent.proof.job_checker import Finding

from .frame import JOBS, NOW, Frame, Place, Seen
from .memory import LOST, NEWBORN, OUTCOMES, SIGNAL, Call, Ghost, Memory
from .stage import Effect, Stage, beat_of
from .steps import Steps

Workers = tuple[Memory, ...]


class Next(NamedTuple):
    """A state as a step leaves it, not yet renamed. label: (worker or None, words...)"""

    label: tuple[Any, ...]
    frame: Frame
    workers: Workers
    broken: tuple[str, str, str] | None = None


class Broken(Exception):
    """A promise does not hold after this step."""

    def __init__(self, job_id: str, rule: str, detail: str, label: tuple[Any, ...]) -> None:
        super().__init__(rule)
        self.job_id, self.rule, self.detail, self.label = job_id, rule, detail, label


class Acts:
    """The actors. Each step is one store call, one reply heard, or one thing inside a process."""

    def __init__(self, stage: Stage, hooks: Hooks, slots: int, jobs: int) -> None:
        self.stage = stage
        self.contract = stage.contract
        self._jobs = jobs
        self.steps = Steps(self.contract, hooks.state, slots)
        moves = {edge.move for edge in self.contract.edges}
        self._signals = Move.WAIT in moves
        self._cancels = Move.CANCEL in moves
        self._ended_well = {edge.target for edge in self.contract.edges if edge.move is Move.SUCCEED}
        self._clock: dict[int, Frame] = {}

    def successors(self, place: Place, workers: Workers) -> Iterator[Next]:
        alone = self._within(workers)
        if alone is None:
            for label, effect in self._outside(place):
                yield _after((None, *label), effect, workers)
        for i, memory in enumerate(workers):
            if alone not in (None, i) or (memory == NEWBORN and i and NEWBORN in workers[:i]):
                continue  # nobody else sees what happens in there, or its twin does the same
            for words, effect, after in self._worker(place, memory):
                yield _after((i, words), effect, (*workers[:i], after, *workers[i + 1 :]))

    def _within(self, workers: Workers) -> int | None:
        """A worker whose next steps are all inside its own process: they commute with everything others can do."""
        for i, memory in enumerate(workers):
            if memory.call and not memory.held and self.stage.is_over(memory.call):
                return i
        return None

    def _outside(self, place: Place) -> Iterator[tuple[tuple[Any, ...], Effect]]:
        """Producer, sweeper, operator and time: nobody who remembers anything."""
        if place.moment is not None:
            yield (f"{place.moment / 1e6:g} s pass",), Effect(self._later(place))
        if any(job and job.phase == Phase.LEASED for job in place.jobs):
            yield ("the sweeper expires leases",), self._play(place, "expire", Engine.expire)
        if any(job and job.phase == Phase.BLOCKED and job.due is not None and job.due <= 0 for job in place.jobs):
            yield ("the sweeper wakes what is due",), self._play(place, "wake", Engine.wake)
        for number, job in enumerate(place.jobs[: self._jobs]):
            again = "" if job is None else " once more, its first reply was lost"
            yield (f"{JOBS[number]} is submitted{again}",), self._submit(place, number)
            if job is not None:
                for words, effect in self._operator(place, number, job):
                    yield ("the operator", words, JOBS[number]), effect

    def _operator(self, place: Place, number: int, job: Seen) -> Iterator[tuple[str, Effect]]:
        job_id, who = JOBS[number], "operator"
        final = job.phase == Phase.FINAL
        if self._cancels and not (final and job.begun) and not job.cancel:
            yield "cancels", self._act(place, "cancel", number, lambda e: e.cancel(job_id, actor=who))
        if final and self._cancels and job.result is not None:
            yield "cancels the ended", self._act(place, "late cancel", number, lambda e: e.cancel(job_id, actor=who))
        if job.status in self.contract.cancel_requests and self.contract.edge(job.status, Move.CANCEL) and job.cancel:
            yield (
                "forces the end of",
                self._act(place, "force", number, lambda e: e.cancel(job_id, actor=who, force=True)),
            )
        if self._signals and not final and not job.signals:
            yield "signals", self._act(place, "signal", number, lambda e: e.signal(job_id, SIGNAL, 1, actor=who))
        if job.phase == Phase.CLAIMABLE and self.contract.edge(job.status, Move.FAIL):
            yield "aborts", self._act(place, "abort", number, lambda e: e.abort(job_id, actor=who))
        if final and self.contract.edge(job.status, Move.REOPEN):
            yield "reopens", self._act(place, "reopen", number, lambda e: e.reopen(job_id, actor=who))
        if job.status in self.contract.approval_statuses:
            yield "approves", self._act(place, "approve", number, lambda e: e.approve(job_id, actor=who))
            yield "rejects", self._act(place, "reject", number, lambda e: e.reject(job_id, actor=who, reason="no"))

    def _worker(self, place: Place, memory: Memory) -> Iterator[tuple[str, Effect, Memory]]:
        here = Effect(place.frame)
        for words, after, late in self.steps.inside(memory):
            yield words, self._offer(place, late) if late else here, after
        yield from self._settle_and_claim(place, memory)
        leases = self.steps.leases(memory)
        if leases and memory.beat is None:
            effect = self.stage.beat(place, leases)
            if isinstance(effect.answer, Extended):
                yield "sends a heartbeat", effect, memory._replace(beat=beat_of(leases, effect.answer))
        if memory.beat is not None:
            after, let_go = self.steps.heard(memory)
            for hold in memory.held:
                job = place.jobs[hold.job]
                if hold.job in let_go and job and job.phase == Phase.LEASED and job.token == hold.token:
                    here = here._replace(broken=(JOBS[hold.job], ("lease.dropped", _DROPPED)))
            yield "hears its heartbeat's answer", here, after

    def _offer(self, place: Place, late: Ghost) -> Effect:
        job_id, token = JOBS[late.job], late.token
        return self.stage.play(place, ("late", *late), lambda engine: engine.settle(job_id, token, _SUCCESS))

    def _settle_and_claim(self, place: Place, memory: Memory) -> Iterator[tuple[str, Effect, Memory]]:
        ordered = self.steps.order(memory)
        if ordered is None:
            return
        call, memory = ordered
        found = self.stage.step(place, call)
        if not isinstance(found, Effect):
            failed = isinstance(found, DetentError)
            here = Effect(
                place.frame, broken=None if isinstance(found, DetentError) else self._lost(place, call, found)
            )
            yield (
                f"hears {'that its settle_and_claim failed' if failed else 'what its settle_and_claim did'}",
                here,
                self.steps.ended(memory, found),
            )
            return
        words = _words(call)
        if not isinstance(found.answer, DetentError):
            yield words, found, memory._replace(call=call.answered(found.answer))
        lost = memory._replace(call=call._replace(replies=(*call.replies, LOST)))
        yield f"{words}, the reply is lost", found, lost
        if call.replies:
            yield f"{words}, the store does not take it", Effect(place.frame), lost

    def _lost(self, place: Place, call: Call, answer: BatchResult) -> tuple[str, Finding] | None:
        """A success the worker was told of is there, for good."""
        for told in call.settled:
            job = place.jobs[told.job]
            undecided = any(said.id == JOBS[told.job] for said in answer.later)
            accepted = told.outcome == "success" and JOBS[told.job] not in answer.refused and not undecided
            if accepted and (job is None or job.status not in self._ended_well):
                return JOBS[told.job], ("settle.lost", "an acknowledged success is not there")
        return None

    def _submit(self, place: Place, number: int) -> Effect:
        ask = self.stage.submission(number)
        return self._act(place, "submit", number, lambda engine: engine.submit(ask))

    def _act(self, place: Place, kind: str, number: int, begin: Callable[[Engine], Coroutine[Any, Any, Any]]) -> Effect:
        return self.stage.play(place, (kind, number), begin)

    def _play(self, place: Place, kind: str, begin: Callable[[Engine], Coroutine[Any, Any, Any]]) -> Effect:
        return self.stage.play(place, (kind,), begin)

    def _later(self, place: Place) -> Frame:
        frame = self._clock.get(place.number)
        if frame is None:
            assert place.moment is not None
            frame = self._clock[place.number] = self.stage.desk.timeless(place.frame, NOW + place.moment)
        return frame


_SUCCESS = OUTCOMES["success"]
_DROPPED = "an old heartbeat's answer takes a job from its handler while the lease stands"


def _after(label: tuple[Any, ...], effect: Effect, workers: Workers) -> Next:
    broken = None if effect.broken is None else (effect.broken[0], *effect.broken[1])
    return Next(label, effect.frame, workers, broken)


def _words(call: Call) -> str:
    told = [f"settles {JOBS[s.job]} ({s.outcome})" for s in call.settled]
    if call.replies:
        return "goes on with its cycle"
    return " and ".join([*told, *(["claims"] if call.want else [])])
