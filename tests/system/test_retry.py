"""What is repeated, how often, and after which pauses; no test waits."""

from collections.abc import Sequence

import pytest

from detent.core.errors import DetentError, StoreContended, StoreRefused, StoreUnavailable, VersionConflict
from detent.system.retry import CONFLICT, OUTAGE, RetryPolicy

pytestmark = pytest.mark.anyio


class Call:
    """Fails with these errors in turn, then returns the number of attempts."""

    def __init__(self, errors: Sequence[DetentError]) -> None:
        self.errors = list(errors)
        self.attempts = 0
        self.pauses: list[float] = []

    async def __call__(self) -> int:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.attempts

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.mark.parametrize(
    "policy, error, pauses",
    [
        (CONFLICT, VersionConflict("lost"), [n / 1_000 for n in range(9)]),
        (CONFLICT, StoreContended("deadlock"), [n / 1_000 for n in range(9)]),
        (OUTAGE, StoreUnavailable("down"), [0.05, 0.2, 0.8, 2.0]),
    ],
)
async def test_a_policy_repeats_its_errors_and_gives_up(
    policy: RetryPolicy, error: DetentError, pauses: list[float]
) -> None:
    call = Call([error] * len(pauses))
    assert await policy.run(call, call.sleep) == len(pauses) + 1
    assert call.pauses == pauses
    call = Call([error] * 99)
    with pytest.raises(type(error)):
        await policy.run(call, call.sleep)
    assert call.attempts == len(pauses) + 1


@pytest.mark.parametrize("policy", [CONFLICT, OUTAGE])
async def test_the_first_success_ends_it(policy: RetryPolicy) -> None:
    call = Call([])
    assert await policy.run(call, call.sleep) == 1 and call.pauses == []


@pytest.mark.parametrize(
    "policy, error",
    [
        (CONFLICT, StoreUnavailable("down")),
        (CONFLICT, StoreRefused("bad value")),
        (OUTAGE, StoreContended("ten deadlocks")),
        (OUTAGE, VersionConflict("lost ten times")),
        (OUTAGE, StoreRefused("bad value")),
    ],
)
async def test_other_errors_are_raised_at_once_so_that_policies_do_not_multiply(
    policy: RetryPolicy, error: DetentError
) -> None:
    call = Call([error])
    with pytest.raises(type(error)):
        await policy.run(call, call.sleep)
    assert call.attempts == 1 and call.pauses == []
