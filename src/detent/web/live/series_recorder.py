"""Keeps the series up to date while somebody serves: every few seconds a bounded look at what was logged since."""

import asyncio
import logging

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.metrics.time_series import Recorder

log = logging.getLogger("detent.web")
_EVERY_SECONDS = 2.0
_BEHIND_SECONDS = 0.05


async def record(engine: Engine) -> None:
    """Until cancelled. Far behind, it works in small pieces and leaves the store to others in between."""
    recorder = Recorder(engine)
    while True:
        caught_up = True
        try:
            caught_up = await recorder.catch_up(4)
        except DetentError as error:
            log.debug("the series cannot be recorded now: %s", error)
        await asyncio.sleep(_EVERY_SECONDS if caught_up else _BEHIND_SECONDS)
