"""One verification at a time for a process, aside from requests: millions of jobs take longer than anyone waits."""

import asyncio
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError
from detent.core.times import iso
from detent.ports.access import Audit
from detent.proof.verify.verify import verify

if TYPE_CHECKING:
    from detent.web.http.state import Web


class Verifier:
    """Knows how far it is, and what the last one found."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._task: asyncio.Task[None] | None = None
        self._told: dict[str, Any] = {"started_at": None, "started_by": None, "ended_at": None, "error": None}
        self._report: dict[str, Any] | None = None
        self._done = self._total = 0

    def as_dict(self) -> dict[str, Any]:
        under_way = self._task is not None and not self._task.done()
        return {"under_way": under_way, "done": self._done, "total": self._total, **self._told, "report": self._report}

    async def start(self, person: str) -> None:
        if self._task is not None and not self._task.done():
            return
        engine = await self._web.engine()
        self._done = self._total = 0
        started = iso(engine.store.now())
        self._told = {"started_at": started, "started_by": person, "ended_at": None, "error": None}
        self._task = asyncio.create_task(self._run(), name="detent-web-verify")
        self._web.keep(self._task)
        await engine.store.write(lambda tx: tx.add_audit(Audit(person, "verify", "database")))

    async def wait(self) -> None:
        """Until the one under way has ended."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        engine = await self._web.engine()
        try:
            report = await verify(engine.store, engine.contracts, progress=self._progress)
            self._report = report.as_dict()
        except DetentError as error:
            self._told["error"] = error.message
        self._told["ended_at"] = iso(engine.store.now())

    def _progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
