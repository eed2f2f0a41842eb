"""Who counts as another person, what limits of a token include, and the least roles of a power."""

import pytest

from detent.core.access import Power, Reach, Signer, count_people, least_roles, reason_for_doubt
from detent.core.errors import ScopeViolation

ANN, BOB, CY = Signer("ann"), Signer("bob"), Signer("cy")
TYPED = Signer("dan", None)


def by(person: str, *others: str) -> Signer:
    """A signer whose token others know."""
    return Signer(person, others)


@pytest.mark.parametrize(
    "signers, people",
    [
        ((), 0),
        ((ANN,), 1),
        ((ANN, BOB), 2),
        ((ANN, Signer(" ＡＮＮ")), 1),
        ((ANN, by("bob", "Ann")), 1),
        ((by("bob", "ann"), by("cy", "ann")), 1),
        ((by("bob", "ann"), by("cy", "eve")), 2),
        ((by("cy", "bob", "ann"), ANN), 1),
        ((by("ann", "root"), BOB), 2),
        ((by("bob", "ann", "cy"), ANN, CY), 2),
        ((TYPED,), 1),
        ((TYPED, Signer("eve", None)), 1),
        ((TYPED, ANN), 1),
        ((TYPED, ANN, BOB), 2),
    ],
)
def test_two_signers_whom_one_person_may_be_count_once(signers: tuple[Signer, ...], people: int) -> None:
    assert count_people(signers) == count_people(signers[::-1]) == people


def test_a_doubt_names_what_to_do() -> None:
    assert "bob must replace it with `detent token rotate`" in reason_for_doubt(ANN, by("bob", "ann"))
    assert "bob must replace it" in reason_for_doubt(by("bob", "ann"), ANN)
    assert "dan is not proven" in reason_for_doubt(TYPED, ANN) and "dan is not proven" in reason_for_doubt(ANN, TYPED)
    assert reason_for_doubt(ANN, Signer("Ann")) == "Ann is the same person"


def test_a_signer_is_surer_with_fewer_people_behind_the_name() -> None:
    assert BOB.is_surer_than(by("Bob", "ann")) and BOB.is_surer_than(TYPED)
    for weaker, other in ((BOB, BOB), (TYPED, BOB), (by("bob", "ann"), BOB), (ANN, by("bob", "ann")), (TYPED, TYPED)):
        assert not weaker.is_surer_than(other)


def test_a_reach_includes_its_queues_and_types() -> None:
    reach = Reach(("a", "b"), ("mail",))
    assert reach.includes("a", "mail") and not reach.includes("c", "mail") and not reach.includes("a", "pay")
    assert Reach().includes("any", "thing") and not Reach().is_limited
    assert reach.within_queues(None) == {"a", "b"} and reach.within_queues(["a"]) == {"a"}
    assert Reach().within_queues(None) is None and Reach().within_types(["x"]) == {"x"}
    with pytest.raises(ScopeViolation, match="does not reach c"):
        reach.within_queues(["a", "c"])


def test_the_least_roles_of_a_power() -> None:
    assert least_roles(Power.READ) == ["viewer"] and least_roles(Power.ADMIN) == ["admin"]
    assert least_roles(Power.DISCARD) == ["operator", "reviewer"]
    assert least_roles(Power.WORK) == ["worker"] and least_roles(Power.SUBMIT) == ["producer"]
