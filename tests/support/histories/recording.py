"""The record of the calls of one process: a line before each call and a line after it, written at once.

A process may be killed at any time; then the last lines have no response, and their calls are unknown.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from .checker import NEVER, Call


class Recorder:
    """Times are those of the machine's monotonic clock, which all processes share."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.number = 0

    def invoke(self, kind: str, *arguments: Any) -> int:
        self.number += 1
        self._write([self.number, monotonic(), kind, *arguments])
        return self.number

    def respond(self, number: int, answer: Any) -> None:
        self._write([number, monotonic(), answer])

    def _write(self, line: list[Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def calls(folder: Path) -> Iterator[tuple[str, Call]]:
    """The calls of all files by job: a batch is a call for each of its jobs. Lost claims, crashes and listings have no
    job id."""
    for file in sorted(folder.glob("*.jsonl")):
        yield from _calls_of(file)


def _calls_of(file: Path) -> Iterator[tuple[str, Call]]:
    open_calls: dict[int, list[Any]] = {}
    claims: dict[str, float] = {}
    for line in file.read_bytes().split(b"\n"):
        if not line:
            continue
        try:
            number, moment, *rest = json.loads(line)
        except json.JSONDecodeError:  # the process was killed while it wrote its last line
            continue
        if number not in open_calls:
            open_calls[number] = [moment, *rest]
            if rest[0] == "batch":
                claims[rest[2]] = moment
        else:
            begin, kind, *arguments = open_calls.pop(number)
            yield from _READERS[kind](begin, moment, rest[0], *arguments, *([claims] if kind == "batch" else []))
    for begin, kind, *arguments in open_calls.values():
        yield from _READERS[kind](begin, NEVER, None, *arguments, *([claims] if kind == "batch" else []))


def _submit(begin: float, end: float, answer: Any, job_type: str, ids: list[str]) -> Iterator[tuple[str, Call]]:
    for job_id in ids:
        yield job_id, Call("submit", begin, end, (job_type,), "unknown" if answer is None else "ok")


def _batch(
    begin: float, end: float, answer: Any, settled: list[list[str]], token: str, claims: dict[str, float]
) -> Iterator[tuple[str, Call]]:
    """answer: the claimed jobs (id, token, version, execution), ids of refused and of deferred settlements.

    claims: when the claim of a token began; jobs of a claim whose reply was lost come with a later one.
    """
    claimed, refused, deferred = answer or ((), (), ())
    for job_id, held, outcome in settled:
        if answer is None or job_id in deferred:  # a deferred one may have been committed, its reply lost
            yield job_id, Call("settle", begin, NEVER, (held, outcome), "unknown")
        else:
            yield job_id, Call("settle", begin, end, (held, outcome), "refused" if job_id in refused else "ok")
    for job_id, held, *facts in claimed:
        yield job_id, Call("claim", claims[held], end, (held, *facts, bool(settled)), "ok")
    if answer is None and token:
        yield "", Call("claim", begin, NEVER, (token,), "unknown")


def _keyed(begin: float, end: float, answer: Any, key: str, job_id: str) -> Iterator[tuple[str, Call]]:
    """A call on the key, and a submit of the job that it returned."""
    result = "unknown" if answer is None else answer
    yield f"key {key}", Call("keyed", begin, end, (job_id,), result)
    yield answer or job_id, Call("submit", begin, end, ("quick",), "unknown" if answer is None else "ok")


def _extend(begin: float, end: float, answer: Any) -> Iterator[tuple[str, Call]]:
    """answer: (job id, token, whether it still holds the job). One without a response tells nothing."""
    for job_id, token, is_held in answer or ():
        yield job_id, Call("extend", begin, end, (token,), "ok" if is_held else "refused")


def _operation(kind: str) -> Any:
    def read(begin: float, end: float, answer: Any, job_id: str) -> Iterator[tuple[str, Call]]:
        if answer is None and kind == "read":
            return
        result = "unknown" if answer is None else tuple(answer) if isinstance(answer, list) else answer
        yield job_id, Call(kind, begin, end, (), result)

    return read


def _reads(begin: float, end: float, answer: Any) -> Iterator[tuple[str, Call]]:
    """A page of the listing of all jobs."""
    for job_id, status, version in answer or ():
        yield job_id, Call("read", begin, end, (), (status, version))
    yield "", Call("listing", begin, end, tuple(row[0] for row in answer or ()), "ok")


def _crash(begin: float, end: float, answer: Any) -> Iterator[tuple[str, Call]]:
    yield "", Call("crash", begin, end, (), "ok")


_READERS: dict[str, Any] = {
    "crash": _crash,
    "submit": _submit,
    "keyed": _keyed,
    "extend": _extend,
    "batch": _batch,
    "reads": _reads,
    **{kind: _operation(kind) for kind in ("signal", "cancel", "read")},
}
