"""Every public class, method and property that a user meets in an editor has a docstring of its own."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any

import pytest

import detent
from detent.client.dead_letters import DeadLetters
from detent.client.options import HandlerOptions, LimitOptions
from detent.client.schedules import Schedules
from detent.client.sync import SyncClient, SyncDeadLetters, SyncHandle, SyncSchedules
from detent.client.tenants import TenantApp, TenantJob
from detent.core.contract.builtin import CONTRACTS
from detent.core.options.job_options import UsingOptions
from detent.core.options.schedule_options import ScheduleKeywords

EXPORTED = [value for name in detent.__all__ if inspect.isclass(value := getattr(detent, name))]
CLASSES = [
    *EXPORTED,
    *(DeadLetters, SyncDeadLetters, Schedules, SyncSchedules, SyncClient, SyncHandle, TenantApp, TenantJob),
]


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that Detent's own classes define, inherited ones included."""
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("detent"):
            default_values = getattr(base, "__dataclass_fields__", {})
            for name, member in vars(base).items():
                if not name.startswith("_") and name not in default_values and _is_documentable(member):
                    yield f"{base.__name__}.{name}", member


def _is_documentable(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | cached_property | classmethod | staticmethod)


def generated(cls: type) -> str:
    """The docstring that dataclass() writes where there is none."""
    return f"{cls.__name__}{inspect.signature(cls)}".replace(" -> None", "")


def test_everything_exported_is_a_class_a_contract_a_documented_function_or_the_version() -> None:
    others = {name: getattr(detent, name) for name in detent.__all__ if getattr(detent, name) not in EXPORTED}
    contracts = {value.name for value in others.values() if isinstance(value, detent.Contract)}
    functions = {name for name, value in others.items() if inspect.isfunction(value) and value.__doc__}
    assert (contracts, functions) == (set(CONTRACTS), {"replay", "derive_status"})
    assert len(others) == len(contracts) + len(functions) + 1
    assert re.fullmatch(r"\d+\.\d+\.\d+", detent.__version__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_class_and_its_public_members_have_docstrings(cls: type) -> None:
    assert (vars(cls).get("__doc__") or "").strip(), f"{cls.__name__} has no docstring"
    if is_dataclass(cls):
        assert vars(cls)["__doc__"] != generated(cls), f"{cls.__name__} has only a generated docstring"
    missing = [name for name, member in public_members(cls) if not (member.__doc__ or "").strip()]
    assert not missing, f"no docstring: {', '.join(sorted(set(missing)))}"


@pytest.mark.parametrize("name", ["Context", "SyncContext"])
def test_contexts_have_the_same_calls(name: str) -> None:
    internal = {"children", "scopes", "begin_transaction", "finish", "close", "request_stop"}
    calls = {full_name.partition(".")[2] for full_name, _ in public_members(getattr(detent, name))} - internal
    assert len(calls) == 27 and {"step", "once", "wait_for", "gather", "approval", "effect_key"} <= calls


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (detent.Detent.job, [*HandlerOptions.__annotations__, "run_in"]),
        (detent.JobDefinition.using, list(UsingOptions.__annotations__)),
        (detent.Detent.schedule, [*ScheduleKeywords.__annotations__, "name", "payload"]),
        (detent.Detent.limit, list(LimitOptions.__annotations__)),
        (detent.Detent.__init__, [*inspect.signature(detent.Detent).parameters]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_docstring_names_every_option(function: Any, options: list[str]) -> None:
    assert options, "the test would check nothing"
    missing = [name for name in options if not re.search(rf"\b{name}\b[^.]*?:|\b{name}\b,", function.__doc__)]
    assert not missing, f"{function.__qualname__} does not describe {', '.join(missing)}"
