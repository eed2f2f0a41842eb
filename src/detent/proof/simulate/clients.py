"""Clients of the simulated engine: producers that submit jobs, operators that cancel, signal, approve and requeue."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.access import Scope
from detent.core.contract.model import Contract, Move, Phase
from detent.core.contract.streams import ResultStatus
from detent.core.errors import DetentError, QuotaExceeded, StoreUnavailable
from detent.core.job import Job, Micros
from detent.engine import Submission
from detent.ports.listing import Filter
from detent.ports.stream import Delivery, StreamUnavailable
from detent.ports.verification import JobRow

from .handler import JOB_TYPE, SIGNAL, TOKEN_FIELD, TOKEN_PREFIX, relation_payload
from .loop import MS, SECOND, Process

if TYPE_CHECKING:
    from .simulation import Simulation

_ACTS = ("succeed", "retry", "retry soon", "fail", "snooze", "cancel", "wait", "wait long", "sleep", "ignore")
_WEIGHTS = (8, 8, 4, 2, 2, 1, 4, 1, 2, 2)
_PEOPLE = ("ada", "ben")


class Client(Process):
    """A caller outside the workers; it repeats a call while the store is unavailable or a quota is used up."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation.loop, name)
        self.simulation = simulation
        self.engine = simulation.new_engine(self)
        self.random = simulation.random_stream(name)
        self.scope = Scope(name)
        self.faults_healed = False

    async def call_with_retries(self, call: Callable[[], Coroutine[Any, Any, Any]], tries: int = 4) -> Any:
        """The call's result or its refusal (a DetentError); None if every try failed."""
        for _ in range(tries):
            try:
                return await call()
            except (StoreUnavailable, QuotaExceeded):
                await self.pause(20 * MS, SECOND)
            except DetentError as refusal:
                return refusal
        return None

    async def pause(self, least: Micros, most: Micros) -> None:
        """A random pause."""
        await asyncio.sleep(self.random.randrange(least, most) / SECOND)

    def acknowledge(self, result: Any, job_id: str, submission: Submission | None = None) -> None:
        """A call that creates a job has returned: unless it failed, the job must never be lost."""
        if isinstance(result, DetentError):
            self.simulation.monitor.check_refused(job_id, result)
        elif result is not None:
            self.simulation.monitor.acknowledged.add(result.job.id)
            if submission is not None:
                self.simulation.monitor.check_submitted(submission, result.job.id)


class Producer(Client):
    """Submits its share of the jobs. Ids are created before the call, so the call can be repeated."""

    def __init__(self, simulation: "Simulation", name: str, jobs: int) -> None:
        super().__init__(simulation, name)
        self.jobs = jobs
        self.done = False
        self.start(self._submit_all())

    async def _submit_all(self) -> None:
        config = self.simulation.config
        gap = config.gap_ms * MS
        bulks = [self.random.randrange(self.jobs) for _ in range(config.bulks)]
        for number in range(self.jobs):
            await self.pause(gap // 4, gap * 3 // 2)
            submission = self._draw(number)
            twice = self.random.random() < 0.15
            for _ in range(2 if twice else 1):
                tries = 50 if self.random.random() < 0.9 else 1
                submitted = await self.call_with_retries(partial(self.engine.jobs.submit, submission), tries)
                self.acknowledge(submitted, submission.id or "", submission)
            for _ in range(bulks.count(number)):
                await self._submit_bulk()
        self.done = True

    async def _submit_bulk(self) -> None:
        """Several small jobs in one call: all of them are created, or none."""
        name, size = self.random.choice(self.simulation.config.contracts), self.random.randint(3, 8)
        tenant = self.random.choice(("north", "south"))
        payload = {"plan": [["succeed", 0.02]]}
        jobs = [
            Submission(JOB_TYPE, payload, name, id=self.engine.ids.job(), tenant_id=tenant, actor=self.name)
            for _ in range(size)
        ]
        submitted = await self.call_with_retries(partial(self.engine.jobs.submit_many, jobs), 20)
        for number, job in enumerate(jobs):
            self.acknowledge(submitted[number] if isinstance(submitted, list) else submitted, job.id or "")

    def _draw(self, number: int) -> Submission:
        random = self.random
        name = random.choice(self.simulation.config.contracts)
        contract = self.engine.contract(name)
        creations = {edge.move for edge in contract.edges if edge.source is None}
        plan = [self._plan_line(contract) for _ in range(random.randint(1, 5))]
        return Submission(
            JOB_TYPE,
            {"plan": plan, "steps": number % 2 == 0, **relation_payload(contract, number), **self._deaf()},
            contract=name,
            id=self.engine.ids.job(),
            actor=self.name,
            queue=random.choice(("default", "other")),
            tenant_id=random.choice(("north", "south")),
            priority=random.choice((0, 0, 0, 5)),
            hold=Move.HOLD in creations and random.random() < 0.15,
            delay=random.choice((0.0, 0.0, 0.0, 1.0, 4.0)),
            timeout_ms=random.choice((None, None, 3_000)),
            max_retries=None if contract.retry.frozen else random.choice((None, 0, 1, 2)),
            idempotency_key=random.choice((None, f"{self.name}-{number}")),
        )

    def _deaf(self) -> dict[str, bool]:
        return {"deaf": True} if self.random.random() < 0.4 else {}

    def _plan_line(self, contract: Contract) -> list[Any]:
        """[act, seconds] for one execution; 8 % take longer than a lease."""
        act = self.random.choices(_ACTS, _WEIGHTS)[0]
        low, high = self.random.choices(((0.0, 0.6), (0.5, 3.0), (5.0, 14.0)), (66, 26, 8))[0]
        return [act, round(self.random.uniform(low, high), 3)]


class ForeignWorker(Client):
    """A worker that knows only the stream: it writes its results to the result stream, sometimes twice or never."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name)
        self._transport = simulation.transport(self, foreign=True)
        self.start(self._work())

    async def _work(self) -> None:
        while True:
            try:
                for delivery in await self._transport.tasks.read(self.name, 1, 1.0):
                    await self._run(delivery)
            except StreamUnavailable:
                await self.pause(20 * MS, SECOND)

    async def _run(self, delivery: Delivery) -> None:
        head = {"task_id": delivery.task_id, "message_id": delivery.message_id, "worker": self.name}
        await self._transport.results.publish_results([{**head, "status": ResultStatus.CLAIMED}])
        await self.pause(0, 5 * SECOND)
        if self.random.random() < 0.1 and not self.faults_healed:
            return  # it crashed
        token = {TOKEN_FIELD: delivery.message_id}
        result = {**head, "status": ResultStatus.SUCCEEDED, "output": json.dumps(token)}
        if self.random.random() < 0.3:
            error = f"{TOKEN_PREFIX}{delivery.message_id} on the stream"
            result = {**head, "status": ResultStatus.FAILED, "error": error, "error_code": "FOREIGN"}
        for _ in range(self.random.choice((1, 1, 2))):
            await self._transport.results.publish_results([result])
        if self.random.random() < 0.2:
            await self._transport.tasks.acknowledge([delivery.message_id])


class Operator(Client):
    """Applies random operator commands to random jobs, at any moment and sometimes twice."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name)
        self.start(self._operate())

    async def _operate(self) -> None:
        commands = [self._signal, self._signal, self._signal, self._cancel, self._abort, self._decide]
        commands += [self._dead_letter, self._reopen, self._pause, self._cancel_ended]
        while not self.faults_healed:
            await self.pause(100 * MS, 2 * SECOND)
            job_ids = sorted(self.simulation.monitor.acknowledged)
            if job_ids and not self.faults_healed:
                command = self.random.choice(commands)
                job_id, name = self._choose_job(job_ids), command.__name__.strip("_").replace("_", " ")
                own_choice = command in (self._dead_letter, self._pause, self._cancel_ended)
                self.simulation.note(f"{self.name} {name}" + f" {self.simulation.name_job(job_id)}" * (not own_choice))
                await command(job_id)

    def _choose_job(self, job_ids: list[str]) -> str:
        """A job between two executions, or one of the newest."""
        resting = self.simulation.monitor.jobs_between_executions()
        if resting and self.random.random() < 0.5:
            return self.random.choice(resting)
        return job_ids[-1 - self.random.randrange(min(len(job_ids), 12))]

    def _choose(self, condition: Callable[[Contract, JobRow], bool], job_id: str) -> str:
        """In half of the cases a job for which this is true; else, or if there is none, `job_id`."""
        jobs = self.simulation.monitor.jobs_where(condition)
        return self.random.choice(jobs) if jobs and self.random.random() < 0.5 else job_id

    async def _signal(self, job_id: str) -> None:
        data = {"by": self.name}
        for _ in range(self.random.choice((1, 1, 2))):
            result = await self.call_with_retries(lambda: self.engine.jobs.signal(job_id, SIGNAL, self.scope, data))
            if isinstance(result, tuple):
                job, is_first = result
                self.simulation.monitor.check_signalled(job, SIGNAL, data, is_first=is_first)

    async def _change(self, change: Callable[[], Coroutine[Any, Any, Job]]) -> Job | None:
        """The changed job; None if the call was refused or failed."""
        result = await self.call_with_retries(change)
        if not isinstance(result, Job):
            return None
        self.simulation.monitor.check_changed(result)
        return result

    async def _cancel(self, job_id: str) -> None:
        if self.random.random() < 0.6:
            force = self.random.random() < 0.3
            job = await self._change(lambda: self.engine.jobs.cancel(job_id, self.scope, force=force))
            if force and job is not None and job.phase is not Phase.FINAL:
                self.simulation.monitor.report(job_id, "cancel.not-forced", f"a forced cancel left it {job.status}")

    async def _cancel_ended(self, job_id: str) -> None:
        monitor = self.simulation.monitor
        ended = [other for other in sorted(monitor.acknowledged) if monitor.any_ended([other])]
        if ended:
            await self._cancel(self.random.choice(ended))

    async def _abort(self, job_id: str) -> None:
        if self.random.random() < 0.5:
            await self._change(lambda: self.engine.jobs.abort(job_id, self.scope))

    async def _decide(self, job_id: str) -> None:
        job_id = self._choose(lambda contract, row: row.status in contract.approval_statuses, job_id)
        decide = self.engine.approvals.approve if self.random.random() < 0.7 else self.engine.approvals.reject
        if job := await self._change(lambda: decide(job_id, self.scope)):
            self.simulation.monitor.check_voted(job, self.name)

    async def _reopen(self, job_id: str) -> None:
        job_id = self._choose(lambda contract, row: bool(contract.edge(row.status, Move.REOPEN)), job_id)
        await self._change(lambda: self.engine.jobs.reopen(job_id, self.scope))

    async def _pause(self, job_id: str) -> None:
        """Pause a queue for a while, and cancel or abort jobs that rest in the meantime."""
        await self.call_with_retries(lambda: self.engine.limits.pause("queue", "other", self.scope))
        for _ in range(3):
            await self.pause(0, 2 * SECOND)
            resting = self.simulation.monitor.jobs_between_executions()
            if resting:
                await self.random.choice((self._abort, self._cancel))(self.random.choice(resting))
        await self.call_with_retries(lambda: self.engine.limits.resume("queue", "other", self.scope), 50)

    async def _dead_letter(self, job_id: str) -> None:
        """Requeue a dead letter as a job whose id was created beforehand, or discard it as one of two people."""
        dead_letters = await self.call_with_retries(lambda: self.engine.dead_letters.list(Filter(limit=5)))
        if not isinstance(dead_letters, list) or not dead_letters:
            return
        item = self.random.choice(dead_letters)
        if self.random.random() < 0.6:
            new_id = self.engine.ids.job()
            requeue = partial(self.engine.dead_letters.requeue, item.id, self.scope, new_id=new_id)
            for _ in range(self.random.choice((1, 1, 2))):
                self.acknowledge(await self.call_with_retries(requeue), new_id)
        else:
            person = self.random.choice(_PEOPLE)
            await self.call_with_retries(lambda: self.engine.dead_letters.discard(item.id, Scope(person, "simulated")))
