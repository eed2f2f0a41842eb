"""The pauses of a loop that tries again; no test waits."""

import pytest

from detent.system.backoff import Backoff

pytestmark = pytest.mark.anyio


async def pauses(backoff: Backoff, slept: list[float], number: int) -> list[float]:
    slept.clear()
    for _ in range(number):
        await backoff.pause()
    return list(slept)


async def test_pauses_double_up_to_the_longest_and_begin_again_after_a_reset() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    backoff = Backoff(0.1, 1.0, sleep=sleep)
    assert backoff.seconds == 0.1
    assert await pauses(backoff, slept, 6) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.seconds == 1.0
    backoff.reset()
    assert backoff.seconds == 0.1
    assert await pauses(backoff, slept, 2) == [0.1, 0.2]


@pytest.mark.parametrize("failures, seconds", [(0, 1.0), (1, 2.0), (8, 256.0), (9, 300.0), (5_000, 300.0)])
def test_the_pause_after_a_number_of_failures(failures: int, seconds: float) -> None:
    assert Backoff(1.0, 300.0, failures=failures).seconds == seconds
