"""Random calls, legal and not, over every contract and every store: the rows and the log never part."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .model import FACTS
from .operators import OperatedMachine
from .places import PLACES

QUICK = settings(
    max_examples=27,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=300, stateful_step_count=80, derandomize=False, database=None)
SLOWER = {"postgres": settings(QUICK, max_examples=6, phases=(Phase.generate,))}
"""A server answers in half a millisecond what a file in memory answers in a hundredth of one: fewer examples."""
CASES = {**{name: (name,) for name in FACTS}, "mixed": tuple(FACTS)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", CASES)
def test_any_calls_keep_every_promise(case: str, place: str) -> None:
    run_state_machine_as_test(state(case, place), settings=SLOWER.get(place, QUICK))


@pytest.mark.drill
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", CASES)
def test_very_many_calls_keep_every_promise(case: str, place: str) -> None:
    run_state_machine_as_test(state(case, place), settings=LONG)


def state(case: str, place: str) -> type[OperatedMachine]:
    ours = {"contracts": CASES[case], "open_place": staticmethod(PLACES[place])}
    return type(f"Machine_{case.replace('-', '_')}_{place}", (OperatedMachine,), ours)
