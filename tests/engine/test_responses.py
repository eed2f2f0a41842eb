"""`show` makes answers from rows."""

from typing import Annotated, TypedDict

import pytest

from detent.core.schedule import Fire
from detent.engine.reads.responses import Timestamp, answer_of, show


class FireAnswer(TypedDict):
    """A run."""

    fire_at: Annotated[Timestamp | None, "When."]
    made_at: Timestamp
    job_id: str
    late: bool


def test_an_answer_has_attributes_times_and_given_values() -> None:
    row = Fire("s", 0, "j", 1_500_000)
    assert show(FireAnswer, row, late=True) == {
        "fire_at": "1970-01-01T00:00:00Z",
        "made_at": "1970-01-01T00:00:01.500000Z",
        "job_id": "j",
        "late": True,
    }
    assert show(FireAnswer, row, late=False, fire_at=None)["fire_at"] is None, "a given value replaces that of the row"
    with pytest.raises(AttributeError):
        show(FireAnswer, row)


def test_results_are_answers() -> None:
    assert list(answer_of("FireResponse", Fire, dry_run=bool).__annotations__) == ["dry_run", *Fire._fields]
