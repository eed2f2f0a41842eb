"""Verification of all jobs as a background task, at most one per process; for millions of jobs it takes minutes."""

import asyncio
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError
from detent.core.times import iso
from detent.ports.access import Audit
from detent.proof.verify.verify import verify

if TYPE_CHECKING:
    from detent.web.http.state import Web


class Verifier:
    """Runs the verification; holds its progress and the last report."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._task: asyncio.Task[None] | None = None
        self._run_info: dict[str, Any] = {"started_at": None, "started_by": None, "ended_at": None, "error": None}
        self._report: dict[str, Any] | None = None
        self._done = self._total = 0

    @property
    def _running(self) -> bool:
        return self._task is not None and not self._task.done()

    def as_dict(self) -> dict[str, Any]:
        progress = {"under_way": self._running, "done": self._done, "total": self._total}
        return {**progress, **self._run_info, "report": self._report}

    async def start(self, person: str) -> None:
        """Start a verification; does nothing if one is running."""
        if self._running:
            return
        engine = await self._web.engine()
        self._done = self._total = 0
        started = iso(engine.store.now())
        self._run_info = {"started_at": started, "started_by": person, "ended_at": None, "error": None}
        self._task = asyncio.create_task(self._run(), name="detent-web-verify")
        self._web.track(self._task)
        await engine.store.write(lambda tx: tx.audit.add_audit(Audit(person, "verify", "database")))

    async def wait(self) -> None:
        """Wait until the running verification has finished."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        engine = await self._web.engine()
        try:
            report = await verify(engine.store, engine.contracts, progress=self._progress)
            self._report = report.as_dict()
        except DetentError as error:
            self._run_info["error"] = error.message
        self._run_info["ended_at"] = iso(engine.store.now())

    def _progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
