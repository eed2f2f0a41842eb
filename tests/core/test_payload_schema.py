"""The check of payloads by their JSON schema: it agrees with pydantic, and never refuses what pydantic accepts."""

from datetime import datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from detent.core.options.json_schema import find_problem


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Item(pydantic.BaseModel):
    name: Annotated[str, Field(min_length=2, max_length=4)]
    parts: list["Item"] = []


class Card(pydantic.BaseModel):
    kind: Literal["card"]
    number: str


class Cash(pydantic.BaseModel):
    kind: Literal["cash"]


class Everything(pydantic.BaseModel, extra="forbid"):
    number: int = 0
    share: Annotated[float, Field(ge=0, lt=1)] = 0
    flag: bool = False
    text: str | None = None
    colour: Colour = Colour.RED
    size: Size = Size.SMALL
    item: Item | None = None
    pair: tuple[int, str] = (1, "a")
    names: dict[str, int] = {}
    unique: set[int] = set()
    price: Decimal = Decimal(1)
    at: datetime | None = None
    paid: Annotated[Card | Cash, Field(discriminator="kind")] | None = None
    anything: Any = None


SCHEMA = Everything.model_json_schema()
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(-2, 2),
    st.sampled_from(["", "red", "1", "1.5", "true", "ab", "abcde", "x", " 7 ", "1_0", "nan"]),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "parts", "kind", "number", "a"]), inner, max_size=3)
        | st.fixed_dictionaries({"kind": st.sampled_from(["card", "cash"])}, optional={"number": PLAIN})
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from([*Everything.model_fields, "more"]), VALUES, max_size=3)


@given(OBJECTS)
def test_it_refuses_nothing_that_pydantic_accepts(value: dict[str, Any]) -> None:
    if find_problem(SCHEMA, value) is not None:
        with pytest.raises(pydantic.ValidationError):
            Everything.model_validate_json(pydantic.RootModel[Any](value).model_dump_json())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"number": 1.5}, ("number", "must be integer")),
        ({"number": "many"}, ("number", "must be integer")),
        ({"share": 1}, ("share", "must be below 1")),
        ({"share": -0.1}, ("share", "must be at least 0")),
        ({"flag": "perhaps"}, ("flag", "must be boolean")),
        ({"text": 7}, ("text", "must be string")),
        ({"colour": "blue"}, ("colour", "must be one of red")),
        ({"item": {"name": "a"}}, ("item.name", "must have at least 2 characters")),
        ({"item": {"name": "ab", "parts": [{}]}}, ("item.parts.0.name", "is missing")),
        ({"pair": [1, 2]}, ("pair.1", "must be string")),
        ({"pair": [1]}, ("pair", "must have at least 2 items")),
        ({"names": {"a": "b"}}, ("names.a", "must be integer")),
        ({"paid": {"kind": "card"}}, ("paid.number", "is missing")),
        ({"more": 1}, ("more", "is not known")),
        ([], ("", "must be object")),
        ({"item": {"name": "ab"}, "number": "7", "anything": [1]}, None),
    ],
)
def test_problems(value: Any, problem: tuple[str, str] | None) -> None:
    assert find_problem(SCHEMA, value) == problem
