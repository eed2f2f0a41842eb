"""Spans of time as numbers, timedeltas and text; other values are refused when the job is declared."""

from datetime import timedelta
from typing import Any

import pytest

from detent import Context, Detent, Retry, Snooze
from detent.core.errors import InvalidInput

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (30, 30_000),
        (1.5, 1_500),
        ("30", 30_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        (timedelta(minutes=5), 300_000),
    ],
)
async def test_a_timeout_in_any_form(app: Detent, value: Any, milliseconds: int) -> None:
    @app.job("work", timeout=value)
    async def work() -> None: ...

    assert (await (await work.enqueue()).job()).timeout_ms == milliseconds
    assert (await (await work.using(timeout=value).enqueue()).job()).timeout_ms == milliseconds


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"timeout": "thirty"}, "TIMEOUT_INVALID", "got 'thirty'"),
        ({"timeout": 0}, "TIMEOUT_INVALID", "from 0.001"),
        ({"timeout": True}, "TIMEOUT_INVALID", "got True"),
        ({"timeout": float("nan")}, "TIMEOUT_INVALID", "got nan"),
        ({"timeout": [30]}, "TIMEOUT_INVALID", "a timedelta, or text like 90s"),
        ({"soft_timeout": "x"}, "SOFT_TIMEOUT_INVALID", "got 'x'"),
        ({"soft_timeout": 30, "timeout": 30}, "SOFT_TIMEOUT_INVALID", "shorter than timeout"),
        ({"park_seconds": "x"}, "PARK_SECONDS_INVALID", "got 'x'"),
        ({"max_retries": "3"}, "MAX_RETRIES_INVALID", "a whole number from 0 to 1000, got '3'"),
        ({"priority": 1.5}, "PRIORITY_INVALID", "got 1.5"),
        ({"queue": 7}, "NAME_INVALID", "queue must be"),
        ({"backoff": "soon"}, "BACKOFF_INVALID", "got 'soon'"),
        ({"give_up_on": "ValueError"}, "GIVE_UP_ON_INVALID", "an exception class"),
        ({"retry_on": (ValueError, 3)}, "RETRY_ON_INVALID", "an exception class"),
        ({"time_out": 3}, "OPTION_UNKNOWN", "time_out"),
    ],
)
async def test_a_bad_value_is_refused_when_the_job_is_declared(
    app: Detent, options: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:

        @app.job("work", **options)
        async def work() -> None: ...

    assert refused.value.code == code and "work" not in app.jobs


async def test_delays_deadlines_and_outcomes_take_timedeltas(app: Detent) -> None:
    @app.job("work")
    async def work(ctx: Context) -> None: ...

    handle = await work.using(delay=timedelta(hours=1), deadline=timedelta(hours=2)).enqueue()
    job = await handle.job()
    assert job.due_at is not None and job.deadline_at is not None
    assert (job.due_at - job.created_at, job.deadline_at - job.created_at) == (3_600_000_000, 7_200_000_000)
    assert (await (await work.using(delay="5m").enqueue()).job()).status == "scheduled"
    for delay in ("soon", -1, None.__class__, timedelta(days=-1)):
        with pytest.raises(InvalidInput, match="delay must be a number of seconds"):
            await work.using(delay=delay).enqueue()  # type: ignore[typeddict-item]
    assert Snooze(timedelta(minutes=1)).seconds == 60 and Retry(after=timedelta(seconds=5)).after == 5
    with pytest.raises(InvalidInput, match="after must be a number of seconds"):
        Retry(after=-1)
