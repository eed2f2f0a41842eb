"""What happened to one job of a simulated run: the lines of the trace about this job, its parents and children."""

import re
from collections.abc import Sequence

_LINE = re.compile(r"(?P<head> *[\d.]+ s  (?:[\w-]+: )?)(?P<events>.*)")
_JOB = re.compile(r"\bjob (\d+)\b")
_CHILD = re.compile(r"job (\d+) \([\w-]+, child of job (\d+)\)")
EVENT_SEPARATOR = "; "


def story_of(trace: Sequence[str], job: int | None) -> list[str]:
    """The trace without events of unrelated jobs; job None: all of it. Lines without a job, like faults, are kept."""
    if job is None:
        return list(trace)
    family = _family(trace, job)
    lines = []
    for line in trace:
        match = _LINE.fullmatch(line)
        assert match is not None, line
        events = [event for event in match["events"].split(EVENT_SEPARATOR) if _concerns(event, family)]
        if events:
            lines.append(match["head"] + EVENT_SEPARATOR.join(events))
    return lines


def in_words(line: str) -> str:
    """A line of the trace for readers. The trace itself is hashed, so its texts stay as they are."""
    line = _COMMAND.sub(lambda match: f"{match[1]} wants to {_COMMANDS[match[2]]}{match[3]}", line)
    return _FAULT.sub(lambda match: f"fault: {_FAULTS[match[1]]}: ", line)


_COMMANDS = {
    "signal": "signal",
    "cancel": "cancel",
    "abort": "abort",
    "decide": "approve or reject",
    "reopen": "reopen",
    "pause": "pause the queue `other` for a while",
    "cancel ended": "cancel a job that has ended",
    "dead letter": "requeue or discard a dead letter",
}
_COMMAND = re.compile(rf"\b(operator-\d+) ({'|'.join(sorted(_COMMANDS, reverse=True))})((?: job \d+)?)$")
_FAULTS = {
    "heart": "late heartbeats",
    "stall": "paused process",
    "stop": "graceful stop",
    "clock": "jump of the clock",
    "deploy": "replaced by another version",
}
_FAULT = re.compile(rf"\bfault: ({'|'.join(_FAULTS)}): ")


def _concerns(event: str, family: set[int]) -> bool:
    jobs = _JOB.findall(event)
    return not jobs or any(int(number) in family for number in jobs)


def _family(trace: Sequence[str], job: int) -> set[int]:
    """The job, its ancestors and its descendants. A parent is created before its children."""
    parents = {int(child): int(parent) for line in trace for child, parent in _CHILD.findall(line)}
    family, ancestor = {job}, parents.get(job)
    for child, parent in parents.items():
        if parent in family:
            family.add(child)
    while ancestor is not None:
        family.add(ancestor)
        ancestor = parents.get(ancestor)
    return family
