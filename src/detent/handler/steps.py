"""The steps of one execution: numbered as they are asked for, remembered from earlier executions, recorded once."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.core.errors import InvalidInput, OnceUnfinished, StaleLease, StepMismatch, StepOrphaned, StoreUnavailable
from detent.core.job import Step
from detent.engine.execution import steps as acts
from detent.engine.submit.submission import check_name
from detent.ports.claims import Claimed

from .argument_digest import digest_of
from .json_values import NOT_JSON, Adapter, first_line, returned_by, text_of, value_of
from .transaction import Scope

if TYPE_CHECKING:
    from detent.engine import Engine

MAX_RESULT = 1 << 20
MAX_ERROR = 500
NEW = object()
"""What recall answers for a step that has not been recorded."""
_PAUSES = (0.05, 0.2, 0.8, 2.0)
Sleep = Callable[[float], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class StepCall:
    """One step as this execution asks for it."""

    name: str
    digest: str
    adapter: Adapter | None


class Numbers:
    """Names of one execution: the first use bears a name as it is, the next ones are `name#2`, `name#3`, …"""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def number(self, name: str, what: str = "step name") -> str:
        check_name(name, what)
        if "#" in name:
            raise InvalidInput(f"{what} {name!r} has a #, which numbers repeats; leave it out", code="NAME_INVALID")
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


class Steps:
    """What is asked, recalled and recorded in one execution of one job."""

    def __init__(
        self, claimed: Claimed, engine: "Engine", *, strict: bool = False, pause: Sleep = asyncio.sleep
    ) -> None:
        self._claimed = claimed
        self._engine = engine
        self._strict = strict
        self._pause = pause
        self._names = Numbers()
        self._asked: set[str] = set()
        self._known: dict[str, Step] | None = None

    def ask(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> StepCall:
        numbered = self._names.number(name)
        self._asked.add(numbered)
        return StepCall(numbered, digest_of(args, kwargs), returned_by(function))

    async def recall(self, asked: StepCall) -> Any:
        """What was recorded under this name, or NEW."""
        step = (await self.load()).get(asked.name)
        if step is None:
            self.left()
            return NEW
        if step.digest != asked.digest:
            raise StepMismatch(
                f"step {asked.name!r} of job {step.job_id} is recorded with other arguments; keep the arguments of a "
                "recorded step, or give the changed one another name",
                step=asked.name,
            )
        if not step.finished:
            raise _unfinished(step)
        try:
            return value_of(asked.adapter, step.result or "null")
        except NOT_JSON as error:
            told = f"the recorded result of step {asked.name!r} is not what it is declared to return"
            raise InvalidInput(f"{told}: {first_line(error)}", code="STEP_RESULT_INVALID", step=asked.name) from None

    async def begin(self, asked: StepCall) -> None:
        """The first of a once's two commits: from here on it is never run again."""
        await self._record(asked, None, finished=False)

    async def broke(self, asked: StepCall, error: BaseException) -> None:
        """A once that raised stays unfinished; why is kept for whoever asks again."""
        told = text_of(None, f"{type(error).__name__}: {first_line(error)}"[:MAX_ERROR])
        await self._record(asked, told, finished=False)

    async def finish(self, asked: StepCall, value: Any, scope: Scope) -> Any:
        """Record the result; what comes back is what every later execution will be given."""
        text = self.text(asked, value)
        if scope.open is None:
            await self._record(asked, text, finished=True)
        else:
            await self._record_with(scope, asked, text)
        return value_of(asked.adapter, text)

    async def _record_with(self, scope: Scope, asked: StepCall, text: str) -> None:
        step, token = self._step(asked, text, finished=True), self._claimed.token
        try:
            await scope.commit(lambda tx: acts.record_last(tx, step, token))
        except StaleLease as error:
            await acts.note_refusal(self._engine, step, error)
            raise

    def text(self, asked: StepCall, value: Any) -> str:
        try:
            text = text_of(asked.adapter, value)
            size = len(text.encode())
        except NOT_JSON as error:
            raise InvalidInput(
                f"step {asked.name!r} returned what its annotation does not allow or JSON cannot hold: "
                f"{first_line(error)}",
                code="STEP_RESULT_INVALID",
                step=asked.name,
            ) from None
        if size > MAX_RESULT:
            raise InvalidInput(
                f"step {asked.name!r} returned {size} bytes, the limit is {MAX_RESULT}; store the data elsewhere and "
                "return a reference",
                code="STEP_RESULT_TOO_LARGE",
                size=size,
                limit=MAX_RESULT,
            )
        return text

    async def account(self) -> None:
        """At the end or before a wait: steps that are recorded and were not asked for are noted, or refused."""
        if self._known is None and acts.has_none_yet(self._claimed):
            return
        await self.load()
        left = self.left()
        if left:
            await self._insisting(lambda: acts.note_orphans(self._engine, self._claimed, left))

    def left(self) -> list[str]:
        """Recorded and not asked for. Strict: refused, and before anything new is done, too."""
        names = [name for name in self._known or () if name not in self._asked]
        if names and self._strict:
            raise _orphaned(self._claimed.id, names)
        return names

    async def load(self) -> dict[str, Step]:
        """All steps of the job, read once."""
        if self._known is None:
            found = await self._insisting(lambda: acts.recorded(self._engine, self._claimed))
            if self._known is None:  # two steps at once ask at once
                self._known = {step.name: step for step in found}
        return self._known

    async def _record(self, asked: StepCall, text: str | None, *, finished: bool) -> None:
        step = self._step(asked, text, finished=finished)
        await self._insisting(lambda: acts.record(self._engine, step, self._claimed.token))

    def _step(self, asked: StepCall, text: str | None, *, finished: bool) -> Step:
        claimed, now = self._claimed, self._engine.store.now()
        return Step(claimed.id, asked.name, asked.digest, text, finished, claimed.execution_no, now)

    async def _insisting(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """A store that is away for a moment must not cost work that is done; the same record counts once."""
        for pause in _PAUSES:
            try:
                return await call()
            except StoreUnavailable:
                await self._pause(pause)
        return await call()


async def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A plain function runs where it is called; what it returns is awaited if that can be."""
    value = function(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _orphaned(job_id: str, names: list[str]) -> StepOrphaned:
    listed = ", ".join(map(repr, names))
    return StepOrphaned(
        f"job {job_id} has recorded steps that the code no longer asks for: {listed}; ask for them again, or requeue "
        "the job to run the new code from the start",
        steps=names,
    )


def _unfinished(step: Step) -> OnceUnfinished:
    raised = f" ({value_of(None, step.result)})" if step.result else ""
    return OnceUnfinished(
        f"{step.name!r} of job {step.job_id} was begun in execution {step.execution_no} and never finished{raised}; it "
        "is not run again. Find out whether it happened, then go on, or do it under another name",
        step=step.name,
        execution_no=step.execution_no,
    )
