"""Heartbeats from a thread of their own, so that a handler which blocks the event loop costs no lease."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.reads.workers import WorkerCommand, order_of
from detent.ports.claims import Extended
from detent.ports.listing import WorkerRow
from detent.ports.tx import Tx

from .state import HeartbeatAnswer

log = logging.getLogger("detent.worker")


class LeaseListener(Protocol):
    """Somebody else who must hear, at each beat, which leases {id: token} we hold; used in the heart's thread."""

    beat_seconds: float

    async def keep(self, engine: Engine, held: Mapping[str, str]) -> None: ...

    async def close(self) -> None: ...


class Heartbeat:
    """Extends every lease each third of it, and looks once a second for cancels, losses and orders."""

    def __init__(
        self,
        engine: Engine,
        lease_seconds: float,
        leases: Callable[[], dict[str, str]],
        row: Callable[[], WorkerRow],
        heard: Callable[[Extended], object],
        keeper: "LeaseListener | None" = None,
        ordered: Callable[[str], object] = lambda act: None,
    ) -> None:
        self._engine = engine
        self._shared = engine.store
        self._lease = lease_seconds
        self._leases = leases
        self._row = row
        self._heard = heard
        self._keeper = keeper
        self._ordered = ordered
        self._obeyed: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="detent-heart", daemon=True)
        self.beats = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._beat_forever())

    async def _beat_forever(self) -> None:
        self._engine = self._engine.sibling()
        try:
            await self._open_and_beat()
        finally:
            if self._keeper is not None:
                await self._keeper.close()
            if self._engine.store is not self._shared:
                await self._engine.close()

    async def _open_and_beat(self) -> None:
        beat_every = self._keeper.beat_seconds if self._keeper else self._lease / 3
        look_every = min(1.0, beat_every)
        since_beat = beat_every
        opened = self._engine.store is self._shared
        while not self._stopped.is_set():
            try:
                if not opened:
                    await self._engine.open()
                    opened = True
                if since_beat >= beat_every - look_every / 2:
                    await self._beat()
                    since_beat = 0.0
                else:
                    await self._look()
            except DetentError as error:
                log.warning("heartbeat failed, trying again in %.2g s: %s", look_every, error)
            except Exception:  # a dead heart would cost every lease
                log.exception("heartbeat failed, trying again in %.2g s", look_every)
            since_beat += look_every
            await asyncio.to_thread(self._stopped.wait, look_every)

    async def _beat(self) -> None:
        held = self._leases()
        row = replace(self._row(), seen_at=self._engine.store.now())

        async def act(tx: Tx) -> tuple[Extended, WorkerCommand | None]:
            await tx.put_worker(row)
            order = await order_of(tx, row.id)
            return await tx.extend(held, int(self._lease * 1_000_000)) if held else Extended(), order

        self._hear(held, *await self._engine.store.write(act))
        self.beats += 1
        if self._keeper is not None:
            await self._keeper.keep(self._engine, held)

    async def _look(self) -> None:
        held, worker = self._leases(), self._row().id

        async def act(tx: Tx) -> tuple[Extended, WorkerCommand | None]:
            return await tx.standing(held) if held else Extended(), await order_of(tx, worker)

        self._hear(held, *await self._engine.store.read(act))

    def _hear(self, held: Mapping[str, str], answer: Extended, order: WorkerCommand | None) -> None:
        self._tell(held, answer)
        if order is not None and order.act != self._obeyed:
            self._obeyed = order.act
            log.info("told by %s to %s%s", order.actor, order.act, f": {order.reason}" if order.reason else "")
            self._ordered(order.act)

    def _tell(self, held: Mapping[str, str], answer: Extended) -> None:
        if answer.lost or answer.cancels:
            self._heard(HeartbeatAnswer(answer.lost, answer.cancels, held))
