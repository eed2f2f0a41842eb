"""Records the time series while the server runs: every two seconds it adds the new events, in bounded batches."""

import asyncio
import logging

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.metrics.time_series import SeriesRecorder

log = logging.getLogger("detent.web")
_INTERVAL_SECONDS = 2.0
_CATCH_UP_SECONDS = 0.05


async def record(engine: Engine) -> None:
    """Run until cancelled. While far behind, pause briefly between batches to let other transactions proceed."""
    recorder = SeriesRecorder(engine)
    while True:
        caught_up = True
        try:
            caught_up = await recorder.catch_up(4)
        except DetentError as error:
            log.debug("recording the time series failed, retrying: %s", error)
        await asyncio.sleep(_INTERVAL_SECONDS if caught_up else _CATCH_UP_SECONDS)
