"""Heartbeats from a thread with its own event loop, so that a handler that blocks the worker's loop loses no lease."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from detent.core.errors import DetentError
from detent.core.times import SECOND
from detent.engine import Engine
from detent.handler.lease import LeaseClock, Reading
from detent.ports.claims import Extended
from detent.ports.listing import WorkerCommand, WorkerRow
from detent.ports.tx import Tx

from .state import HeartbeatAnswer, WorkerState

_MIN_SECONDS = 1.0
"""A heartbeat may take a sixth of the lease, and at least so long."""
log = logging.getLogger("detent.worker.heartbeat")


class LeaseListener(Protocol):
    """Receives the held leases {job id: token} at each heartbeat. Called in the heartbeat's thread."""

    beat_seconds: float

    async def on_heartbeat(self, engine: Engine, held: Mapping[str, str]) -> None: ...

    async def close(self) -> None: ...


class Heartbeat:
    """Extends all leases when the state says so; else checks for cancels, lost leases and commands."""

    def __init__(
        self,
        engine: Engine,
        state: WorkerState,
        lease_clock: LeaseClock,
        row: Callable[[], WorkerRow],
        on_answer: Callable[[HeartbeatAnswer], object],
        on_command: Callable[[str], object] = lambda act: None,
        listener: LeaseListener | None = None,
    ) -> None:
        self._engine = engine
        self._shared = engine.store
        self._state = state
        self._lease_clock = lease_clock
        self._row = row
        self._on_answer = on_answer
        self._on_command = on_command
        self._listener = listener
        if listener is not None:
            state.beat_seconds = listener.beat_seconds
        self._last_command: str | None = None
        self._stored_block: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._beat_forever()), name="detent-heartbeat", daemon=True
        )
        self.beats = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    async def _beat_forever(self) -> None:
        self._engine = self._engine.sibling()
        try:
            await self._open_and_beat()
        finally:
            if self._listener is not None:
                await self._listener.close()
            if self._engine.store is not self._shared:
                await self._engine.close()

    async def _open_and_beat(self) -> None:
        pause = self._state.check_seconds
        opened = self._engine.store is self._shared
        while not self._stopped.is_set():
            try:
                async with asyncio.timeout(max(_MIN_SECONDS, self._state.lease_seconds / 6)):
                    if not opened:
                        await self._engine.open()
                        opened = True
                    await self.send()
            except (DetentError, TimeoutError) as error:
                reason = str(error) or "the store did not answer in time"
                log.warning("heartbeat failed, trying again in %.2g s: %s", pause, reason)
            except Exception:  # if this loop ended, every lease would expire
                log.exception("heartbeat failed, trying again in %.2g s", pause)
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        """Wait for the next heartbeat, or until `stop` is called."""
        await asyncio.to_thread(self._stopped.wait, seconds)

    async def send(self) -> None:
        """Send one heartbeat."""
        at = self._lease_clock.read()
        if self._state.extends_leases(at.monotonic) or self._row().blocked != self._stored_block:
            await self._beat(at)
            self._state.leases_extended(at.monotonic)
        else:
            await self._check(at)

    async def _beat(self, at: Reading) -> None:
        held = self._state.leases_to_extend(at.monotonic)
        row = replace(self._row(), seen_at=self._engine.store.now())

        async def act(tx: Tx) -> tuple[Extended, WorkerCommand | None]:
            await tx.workers.put_worker(row)
            command = await tx.workers.command_of(row.id)
            lease = int(self._state.lease_seconds * SECOND)
            return await tx.claims.extend(held, lease) if held else Extended(), command

        self._report(held, *await self._engine.store.write(act), at)
        self.beats += 1
        self._stored_block = row.blocked
        if self._listener is not None:
            await self._listener.on_heartbeat(self._engine, held)

    async def _check(self, at: Reading) -> None:
        """Read lost leases, cancel requests and commands without extending the leases."""
        held, worker = self._state.leases_to_extend(at.monotonic), self._row().id

        async def act(tx: Tx) -> tuple[Extended, WorkerCommand | None]:
            return await tx.claims.check_leases(held) if held else Extended(), await tx.workers.command_of(worker)

        self._report(held, *await self._engine.store.read(act))

    def _report(
        self,
        held: Mapping[str, str],
        answer: Extended,
        command: WorkerCommand | None,
        extended_at: Reading | None = None,
    ) -> None:
        if answer.lost or answer.cancels or (held and extended_at is not None):
            self._on_answer(HeartbeatAnswer(answer.lost, answer.cancels, held, extended_at))
        if command is not None and command.act != self._last_command:
            self._last_command = command.act
            reason = f": {command.reason}" if command.reason else ""
            log.info("%s sent the command %s%s", command.actor, command.act, reason)
            self._on_command(command.act)
