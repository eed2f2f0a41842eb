"""Functions that are defined inside of a handler and run as its steps."""

import gc
import weakref
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pytest

from detent.handler.json_values import return_adapter, to_json


class Attachment:
    """Something large that a step refers to."""


def step_of(attachment: Attachment, annotation: Any = date) -> Callable[[], Any]:
    def step() -> Any:
        return attachment

    step.__annotations__["return"] = annotation
    return step


def test_a_step_is_not_kept_after_its_execution() -> None:
    attachment = Attachment()
    kept = weakref.ref(attachment)
    assert return_adapter(step_of(attachment)) is not None
    del attachment
    gc.collect()
    assert kept() is None


def test_steps_of_one_definition_share_an_adapter_per_annotation() -> None:
    first, second = (return_adapter(step_of(Attachment())) for _ in range(2))
    assert first is second
    other = return_adapter(step_of(Attachment(), int))
    assert to_json(first, "2026-01-02") == '"2026-01-02"' and to_json(other, "7") == "7"


@pytest.mark.parametrize("annotation", [Annotated[int, {"unit": "ms"}], "int"])
def test_annotations_that_cannot_be_hashed_or_are_text(annotation: Any) -> None:
    assert to_json(return_adapter(step_of(Attachment(), annotation)), "7") == "7"


def test_unresolved_and_missing_annotations_are_plain_json() -> None:
    assert return_adapter(step_of(Attachment(), "Missing")) is None
    assert return_adapter(lambda: 1) is None
