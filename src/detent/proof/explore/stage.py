"""The stage of the explorer: the real engine on one small database that is set to a frame before every call."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.errors import DetentError, StoreRefused, StoreUnavailable
from detent.core.retry import Immediate, Table
from detent.engine import BatchResult, Engine, Submission
from detent.ports.claims import ClaimRequest, Extended
from detent.proof.controlled_store import ControlledStore, Hooks, ManualClock, StoreCall, run_all
from detent.proof.job_checker import Finding

from .frame import FRESH, JOBS, NOW, SPAN_SECONDS, Desk, Frame, Place, Values
from .memory import JOB_TYPE, Beat, Call, Ghost, Said, settlements


class Effect(NamedTuple):
    """What one store call did: the frame after it, what it answered, and what it broke."""

    frame: Frame
    answer: Any = None
    broken: tuple[str, Finding] | None = None


class StageIds:
    """Ids whose value does not matter: frames give them their lasting names."""

    def __init__(self) -> None:
        self._made = 0

    def job(self) -> str:
        self._made += 1
        return f"made-{self._made}"

    def token(self) -> str:
        return FRESH


class Stage:
    """Plays single store calls from given frames; the same call on the same frame is played once."""

    def __init__(self, contract: Contract, hooks: Hooks) -> None:
        self.contract = small(contract)
        self.clock = ManualClock(NOW)
        self.store = ControlledStore(self.clock, hooks)
        contracts = {self.contract.name: self.contract}
        self.engine: Engine = hooks.engine(self.store, contracts, ids=StageIds(), jitter=lambda *_: 0)
        run_all(self.engine.open())
        self.desk = Desk(self.store.session.connection, self.contract)
        self._submit_both()
        self._effects: dict[tuple[Any, ...], Effect] = {}
        self._ends: dict[Call, BatchResult | DetentError] = {}
        self.plays = 0

    def _submit_both(self) -> None:
        """Once, so that the lanes exist; frames bring their own jobs."""
        for number in range(len(JOBS)):
            run_all(self.engine.submit(self.submission(number)))
        self.desk.load(Frame((), (), (), (), ()))

    def submission(self, number: int) -> Submission:
        """The second job is held for approval, or comes later, where the contract knows that."""
        edges = {edge.move for edge in self.contract.edges if edge.source is None}
        second = number == 1
        return Submission(
            JOB_TYPE,
            contract=self.contract.name,
            id=JOBS[number],
            hold=second and Move.HOLD in edges,
            delay=SPAN_SECONDS if second and self.contract.due_on_submit else 0.0,
            trace_id="trace",
        )

    def play(self, place: Place, name: tuple[Any, ...], begin: Callable[[Engine], Coroutine[Any, Any, Any]]) -> Effect:
        """An act with all its store calls at once; a refusal is an answer like any other."""
        return self._effect((place.number, name), place, lambda: run_all(begin(self.engine)), name)

    def beat(self, place: Place, held: dict[str, str]) -> Effect:
        name = ("extend", tuple(held.items()))
        return self.play(place, name, lambda engine: engine.extend(held, SPAN_SECONDS))

    def step(self, place: Place, call: Call) -> Effect | BatchResult | DetentError:
        """The next store call of a cycle, or its end if the replies it has had are all it needs."""
        if self.is_over(call):
            return self._ends[call]
        known = self._effects.get((place.number, call))
        if known is not None:
            return known
        coroutine = self._settle_and_claim(call)
        effect = self._effect((place.number, call), place, _fed(coroutine, call).run, ("cycle", call))
        coroutine.close()
        return effect

    def is_over(self, call: Call) -> bool:
        """Has the cycle had all replies it needs?"""
        if call not in self._ends and call.replies:
            coroutine = self._settle_and_claim(call)
            try:
                _fed(coroutine, call)
                coroutine.close()
            except StopIteration as done:
                self._ends[call] = done.value
            except DetentError as error:
                self._ends[call] = error
        return call in self._ends

    def _settle_and_claim(self, call: Call) -> Coroutine[Any, Any, BatchResult]:
        request: ClaimRequest | None = None
        if call.want:
            request = self.engine.claim_request(
                "worker", call.want, SPAN_SECONDS, job_types=frozenset({JOB_TYPE}), reclaim=call.reclaim
            )
            request = replace(request, token=call.token)
        return self.engine.settle_and_claim(settlements(call.settled, self.contract), request)

    def _effect(self, key: tuple[Any, ...], place: Place, run: Callable[[], Any], name: tuple[Any, ...]) -> Effect:
        known = self._effects.get(key)
        if known is not None:
            return known
        self.plays += 1
        self.desk.load(place.frame)
        self.clock.wall = NOW
        answer: Any = None
        broken: tuple[str, Finding] | None = None
        try:
            answer = run()
        except StoreRefused as error:
            broken = "", ("store.refused", error.message)
        except DetentError as error:
            answer = error
        except Exception as error:
            broken = "", ("engine", f"the engine broke with {type(error).__name__}: {error}")
        raw = self.desk.read()
        if broken is None:
            broken = next(iter(self.desk.findings(raw)), None) or self._trespass(place, raw, name)
        effect = self._effects[key] = Effect(self.desk.timeless(raw, NOW), answer, broken)
        return effect

    def _trespass(self, place: Place, raw: Frame, name: tuple[Any, ...]) -> tuple[str, Finding] | None:
        """A lease ends by its token, by its time, or by an operator; a claim waits until the job is due."""
        after = {values[0]: values for values in raw.jobs}
        at = self.desk.at
        there = {values[0] for values in place.frame.jobs} | ({JOBS[name[1]]} if name[0] == "submit" else set())
        for job_id in sorted(there - set(after)):
            return job_id, ("submit.lost", "an acknowledged submit is not there")
        for number, before in enumerate(place.jobs):
            row = after.get(JOBS[number])
            if before is None or row is None:
                continue
            old = next(values for values in place.frame.jobs if values[0] == JOBS[number])
            moved = row[at["version"]] != old[at["version"]]
            leased = before.phase == Phase.LEASED
            if leased and moved and not self._may_end(number, before.token, before.lease or 0, name):
                return JOBS[number], ("lease.taken", f"{_told(name)} ended a lease that still stood")
            if moved and not leased and name[0] in ("cycle", "late") and not self._was_claimed(row, old, name):
                return JOBS[number], ("settle.stale", f"{_told(name)} changed a job that nobody held")
            lengthened = name[0] == "extend" and row[at["lease_until"]] != old[at["lease_until"]]
            if leased and lengthened and (JOBS[number], before.token) not in name[1]:
                return JOBS[number], ("lease.stale", "a heartbeat without the token moved the lease")
            early = before.phase == Phase.CLAIMABLE and (before.due or 0) > 0
            if early and row[at["phase"]] == Phase.LEASED:
                return JOBS[number], ("due.early", f"{_told(name)} claimed a job {before.due} µs before it was due")
        return None

    def _was_claimed(self, row: Values, old: Values, name: tuple[Any, ...]) -> bool:
        """All a cycle may do to a job nobody holds is claim it, once."""
        at, call = self.desk.at, name[1]
        fresh = isinstance(call, Call) and call.want > 0 and row[at["token"]] == call.token
        return fresh and row[at["version"]] == old[at["version"]] + 1 and row[at["phase"]] == Phase.LEASED

    def _may_end(self, number: int, token: str | None, left: int, name: tuple[Any, ...]) -> bool:
        kind = name[0]
        if kind == "cycle":
            call: Call = name[1]
            expired = left <= 0 and call.reclaim
            return expired or token == call.token or Said(number, token or "", "") in _without_outcome(call)
        if kind == "late":
            return name[1:] == (number, token)
        return left <= 0 if kind == "expire" else kind in ("cancel", "force")


def _without_outcome(call: Call) -> list[Said]:
    return [said._replace(outcome="") for said in call.settled]


def _told(name: tuple[Any, ...]) -> str:
    return "a cycle" if name[0] == "cycle" else str(name[0])


def _fed(coroutine: Coroutine[Any, Any, Any], call: Call) -> StoreCall:
    """Bring a cycle back to where its replies had brought it; ends with StopIteration if that was all."""
    waiting: StoreCall = coroutine.send(None)
    for reply, answer in zip(call.replies, call.answers(), strict=True):
        if reply.lost:
            waiting = coroutine.throw(StoreUnavailable("the reply was lost"))
        else:
            waiting = coroutine.send(answer)
    return waiting


def beat_of(leases: dict[str, str], answer: Extended) -> Beat | None:
    """What the heart has to tell; None if every lease stands and nobody asked for anything."""
    if not answer.lost and not answer.cancels:
        return None
    about = tuple(sorted(Ghost(JOBS.index(job_id), token) for job_id, token in leases.items()))
    lost, asked = (tuple(sorted(JOBS.index(job_id) for job_id in ids)) for ids in (answer.lost, answer.cancels))
    return Beat(about, lost, asked)


def small(contract: Contract) -> Contract:
    """The same machine with one retry and one length for every span, so that equal situations come about often."""
    immediate = isinstance(contract.retry.backoff, Immediate)
    backoff = contract.retry.backoff if immediate else Table((int(SPAN_SECONDS * 1_000),))
    return contract.with_options(retry=replace(contract.retry, max_retries=1, backoff=backoff))
