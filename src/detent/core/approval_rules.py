"""The guard: rules over tool, payload and risk that decide, before a job is dispatched, whether a person must agree."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .errors import InvalidInput

RISKS = ("low", "medium", "high", "critical")
HOLD, ALLOW = "hold", "allow"
Judge = Callable[[str, Mapping[str, Any], str], str | None]
"""(tool_name, payload, risk) -> why a person must agree, or None."""


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Matches when everything it says is so. The first rule that matches decides.

    A value that cannot be compared (text where a number is asked for) is held, never allowed.
    """

    decide: str = HOLD
    tool_name: str = "*"
    """A pattern: payments.*"""
    risk: str = "low"
    """At least this risk."""
    path: str | None = None
    """Where to look in the payload: order.lines.*.amount"""
    equals: Any = None
    one_of: Sequence[Any] | None = None
    above: float | None = None
    below: float | None = None
    matches: str | None = None
    """A regular expression the text must contain."""
    name: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        tests = [self.equals, self.one_of, self.above, self.below, self.matches]
        if self.decide not in (HOLD, ALLOW):
            raise _wrong(self, f"decide must be {HOLD} or {ALLOW}, got {self.decide!r}")
        if self.risk not in RISKS:
            raise _wrong(self, f"risk must be one of {', '.join(RISKS)}, got {self.risk!r}")
        if self.path is None and any(test is not None for test in tests):
            raise _wrong(self, "a test of the payload needs its path")
        try:
            re.compile(self.matches or "")
        except re.error as error:
            raise _wrong(self, f"matches is no regular expression: {error}") from None

    def fits(self, tool_name: str, payload: Mapping[str, Any], risk: str) -> bool:
        if not fnmatchcase(tool_name, self.tool_name) or RISKS.index(risk) < RISKS.index(self.risk):
            return False
        return self.path is None or any(self._holds(value) for value in _at(payload, self.path.split(".")))

    def _holds(self, value: Any) -> bool:
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

    def why(self) -> str:
        said = self.reason or "a person must agree"
        return f"{self.name}: {said}" if self.name else said


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Rules in order, and what each tool may do at the worst."""

    rules: Sequence[ApprovalRule | Judge] = ()
    risks: Mapping[str, str] = field(default_factory=dict)
    """Pattern of tool names -> risk; the first that fits counts."""
    default_risk: str = "low"

    def __post_init__(self) -> None:
        for risk in (*self.risks.values(), self.default_risk):
            if risk not in RISKS:
                raise InvalidInput(f"{risk!r} is no risk; use one of {', '.join(RISKS)}", code="GUARD_INVALID")

    def reason_to_hold(self, tool_name: str, payload: Mapping[str, Any]) -> str | None:
        risk = next((r for pattern, r in self.risks.items() if fnmatchcase(tool_name, pattern)), self.default_risk)
        for rule in self.rules:
            if not isinstance(rule, ApprovalRule):
                if (why := rule(tool_name, payload, risk)) is not None:
                    return why
            elif rule.fits(tool_name, payload, risk):
                return rule.why() if rule.decide == HOLD else None
        return None


def policy_from_toml(text: str) -> ApprovalPolicy:
    """[[rule]] tables, [risks] pattern = risk, default_risk; anything else is refused with its name."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"the guard's rules are not TOML: {error}", code="GUARD_INVALID") from None
    unknown = set(data) - {"rule", "risks", "default_risk"}
    if unknown:
        raise InvalidInput(f"the guard knows no {', '.join(sorted(unknown))}; write [[rule]]", code="GUARD_INVALID")
    known = {one.name for one in fields(ApprovalRule)}
    rules = []
    for number, row in enumerate(data.get("rule", ()), 1):
        strange = set(row) - known
        if strange:
            raise InvalidInput(f"rule {number} knows no {', '.join(sorted(strange))}", code="GUARD_INVALID")
        rules.append(ApprovalRule(**row))
    return ApprovalPolicy(rules, data.get("risks", {}), data.get("default_risk", "low"))


def policy_from_file(path: str) -> ApprovalPolicy:
    try:
        return policy_from_toml(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"the guard's rules cannot be read: {error}", code="GUARD_INVALID") from None


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Every value at this path; * stands for every element."""
    if not path:
        yield value
        return
    head, *rest = path
    if head == "*":
        inner = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        for one in inner:
            yield from _at(one, rest)
    elif isinstance(value, Mapping) and head in value:
        yield from _at(value[head], rest)
    elif isinstance(value, list) and head.isdecimal() and int(head) < len(value):
        yield from _at(value[int(head)], rest)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _wrong(rule: ApprovalRule, text: str) -> InvalidInput:
    return InvalidInput(f"rule {rule.name or rule.tool_name!r}: {text}", code="GUARD_INVALID")
