"""Approval rules: decide by tool, payload and risk, before a job is dispatched, whether it needs an approval."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from .errors import InvalidInput, invalid_value

RISKS = ("low", "medium", "high", "critical")
HOLD, ALLOW = "hold", "allow"
PolicyFunction = Callable[[str, Mapping[str, Any], str], str | None]
"""(tool_name, payload, risk) -> the reason to hold the job for approval, or None."""


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """A rule of an ApprovalPolicy: holds or allows jobs for which all of its conditions are true.

        ApprovalRule(tool_name="payments.*", path="order.lines.*.amount", above=1000, reason="over 1000")

    `tool_name` is matched with the job type, `path` selects values of the payload, which are compared with `equals`,
    `one_of`, `above`, `below` and `matches`. A value of the wrong type (text where a number is expected) matches a hold
    rule and never an allow rule. Raises InvalidInput (GUARD_INVALID).
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic, never changed)

    decide: str = HOLD
    """"hold" or "allow"."""
    tool_name: str = "*"
    """A pattern, for example payments.*"""
    risk: str = "low"
    """The tool has at least this risk."""
    path: str | None = None
    """A path in the payload, for example order.lines.*.amount"""
    equals: Any = None
    one_of: Sequence[Any] | None = None
    above: float | None = None
    below: float | None = None
    matches: str | None = None
    """A regular expression that is searched in the text."""
    name: str = ""
    reason: str = ""
    """Shown to the people who approve, after the name."""

    def __post_init__(self) -> None:
        tests = [self.equals, self.one_of, self.above, self.below, self.matches]
        if self.decide not in (HOLD, ALLOW):
            raise _invalid_rule(self, f"decide must be {HOLD} or {ALLOW}, got {self.decide!r}")
        if self.risk not in RISKS:
            raise _invalid_rule(self, f"risk must be one of {', '.join(RISKS)}, got {self.risk!r}")
        if self.path is None and any(test is not None for test in tests):
            raise _invalid_rule(self, "a condition on the payload needs a path")
        try:
            re.compile(self.matches or "")
        except re.error as error:
            raise _invalid_rule(self, f"matches is not a valid regular expression: {error}") from None

    def applies_to(self, tool_name: str, payload: Mapping[str, Any], risk: str) -> bool:
        """True if all conditions of this rule are true for the job."""
        if not fnmatchcase(tool_name, self.tool_name) or RISKS.index(risk) < RISKS.index(self.risk):
            return False
        return self.path is None or any(
            self._value_matches(value) for value in _values_at(payload, self.path.split("."))
        )

    def _value_matches(self, value: Any) -> bool:
        try:
            return (
                (self.equals is None or value == self.equals)
                and (self.one_of is None or value in self.one_of)
                and (self.above is None or _number(value) > self.above)
                and (self.below is None or _number(value) < self.below)
                and (self.matches is None or re.search(self.matches, _text(value)) is not None)
            )
        except TypeError:
            return self.decide == HOLD

    def hold_reason(self) -> str:
        """The text that is shown to the people who approve."""
        reason = self.reason or "a person must approve"
        return f"{self.name}: {reason}" if self.name else reason


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Rules that hold jobs for approval before they start. The first rule that matches decides; without one it starts.

        app = Detent(url, approval_policy=ApprovalPolicy([ApprovalRule(risk="high")], risks={"shell.*": "high"}))

    A rule may also be a function (tool_name, payload, risk) that returns the reason to hold the job, or None.
    """

    rules: Sequence[ApprovalRule | PolicyFunction] = ()
    risks: Mapping[str, str] = field(default_factory=dict)
    """Pattern of tool names -> risk; the first pattern that matches counts."""
    default_risk: str = "low"
    """The risk of tools that match no pattern: "low", "medium", "high" or "critical"."""

    def __post_init__(self) -> None:
        for risk in (*self.risks.values(), self.default_risk):
            if risk not in RISKS:
                raise InvalidInput(f"risk {risk!r} is unknown; use one of {', '.join(RISKS)}", code="GUARD_INVALID")

    def reason_to_hold(self, tool_name: str, payload: Mapping[str, Any]) -> str | None:
        """Why a job of this type with this payload must be approved; None if it may start."""
        risk = next((r for pattern, r in self.risks.items() if fnmatchcase(tool_name, pattern)), self.default_risk)
        for rule in self.rules:
            if not isinstance(rule, ApprovalRule):
                if (reason := rule(tool_name, payload, risk)) is not None:
                    return reason
            elif rule.applies_to(tool_name, payload, risk):
                return rule.hold_reason() if rule.decide == HOLD else None
        return None


def policy_from_toml(text: str) -> ApprovalPolicy:
    """Read [[rule]] tables, [risks] pattern = risk, and default_risk. Raises InvalidInput (GUARD_INVALID)."""
    import pydantic  # here, because the model takes milliseconds to build and few processes read rules

    class PolicyTable(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")

        rule: list[ApprovalRule] = []
        risks: dict[str, str] = {}
        default_risk: str = "low"

    try:
        table = PolicyTable.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"the approval rules are not valid TOML: {error}", code="GUARD_INVALID") from None
    except pydantic.ValidationError as error:
        raise invalid_value(error, code="GUARD_INVALID") from None
    return ApprovalPolicy(table.rule, table.risks, table.default_risk)


def _values_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Every value at this path; * matches every element."""
    if not path:
        yield value
        return
    head, *rest = path
    if head == "*":
        inner = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        for element in inner:
            yield from _values_at(element, rest)
    elif isinstance(value, Mapping) and head in value:
        yield from _values_at(value[head], rest)
    elif isinstance(value, list) and head.isdecimal() and int(head) < len(value):
        yield from _values_at(value[int(head)], rest)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _invalid_rule(rule: ApprovalRule, text: str) -> InvalidInput:
    return InvalidInput(f"rule {rule.name or rule.tool_name!r}: {text}", code="GUARD_INVALID")
