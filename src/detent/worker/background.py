"""What runs beside a worker's batches: the sweeper, the maintenance loop, and a metrics page if a port is given."""

import asyncio
from functools import partial

from detent.engine import Engine
from detent.observability.histograms import ExecutionHistograms
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.metrics import exposition, require_prometheus
from detent.observability.metrics_server import MetricsServer
from detent.observability.settings import Settings
from detent.ports.clock import Clock

from .reclaim_grace import ReclaimGrace
from .sweeper import Sweeper


class BackgroundServices:
    """Background services that live as long as a worker."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        reclaim_grace: ReclaimGrace,
        settings: Settings,
        metrics_host: str,
        metrics_port: int | None,
    ) -> None:
        self.histograms = ExecutionHistograms()
        self.maintenance = MaintenanceLoop(engine, settings)
        if metrics_port is not None:
            require_prometheus()
        page = partial(exposition, engine, self.maintenance.event_counter, self.histograms)
        self.page = None if metrics_port is None else MetricsServer(page, metrics_host, metrics_port)
        self.sweeper = Sweeper(engine, clock, reclaim_grace)

    async def start(self, *, sweep: bool) -> list[asyncio.Task[None]]:
        """Start the services and return their tasks; the caller cancels them."""
        if self.page is not None:
            await self.page.open()
        await self.sweeper.check_uptime()
        return [asyncio.create_task(loop.run()) for loop in (self.sweeper, self.maintenance)] if sweep else []

    def close(self) -> None:
        if self.page is not None:
            self.page.close()
