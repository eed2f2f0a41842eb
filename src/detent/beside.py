"""What runs beside a worker's cycles: the sweeper, the lookout, and a page of metrics if one was asked for."""

import asyncio

from .caution import Caution
from .engine import Engine
from .lookout import Lookout
from .metrics import exposition
from .metrics_page import MetricsPage
from .ports import Clock
from .settings import Settings
from .sweeper import Sweeper
from .timings import Timings


class Beside:
    """One worker's company; it ends with the worker."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        lease_seconds: float,
        settings: Settings,
        metrics_host: str,
        metrics_port: int | None,
    ) -> None:
        self.timings = Timings()
        self.lookout = Lookout(engine, settings)
        self.page = None if metrics_port is None else MetricsPage(self._measures, metrics_host, metrics_port)
        self.caution = Caution(clock, lease_seconds)
        self.sweeper = Sweeper(engine, self.caution)
        self._engine = engine

    async def start(self, *, sweep: bool) -> list[asyncio.Task[None]]:
        """The tasks that run from now on; the caller ends them."""
        if self.page is not None:
            await self.page.open()
        await self.caution.meet(self._engine.store)
        return [asyncio.create_task(each.run()) for each in (self.sweeper, self.lookout)] if sweep else []

    def close(self) -> None:
        if self.page is not None:
            self.page.close()

    async def _measures(self) -> tuple[bytes, str]:
        return await exposition(self._engine, self.lookout.follower, self.timings)
