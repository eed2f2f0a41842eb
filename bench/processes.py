"""Processes the harness starts: a client that is asked, workers that are counted; what they cost, read from /proc."""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import homes
from .contestants import Contestant
from .peers.counting import LAYOUT

_TICK = os.sysconf("SC_CLK_TCK")
_READY_SECONDS = 60.0
_STOP_SECONDS = 8.0
_POLL_SECONDS = 0.01


class Failed(Exception):
    """A contestant could not do what it was asked; the text is the reason shown."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Handler calls so far, over all processes of the worker; moments are monotonic."""

    calls: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Of all processes together: CPU seconds so far, resident bytes now and at the most."""

    cpu: float = 0.0
    resident: int = 0
    peak: int = 0


def environment(contestant: Contestant, url: str, run: Path, part: str = "drain") -> dict[str, str]:
    """A peer sees its own packages and our scripts, nothing of ours besides."""
    paths = [str(homes.ROOT), *([str(homes.ROOT / "src")] if contestant.ours else [])]
    told = {"BENCH_URL": url, "BENCH_RUN": str(run), "BENCH_PART": part, "BENCH_VARIANT": contestant.variant}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore", **told}


class Client:
    """The contestant's client, asked in JSON lines."""

    def __init__(self, contestant: Contestant, url: str, folder: Path) -> None:
        _bring_scripts(contestant)
        self.log = folder / "client.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                contestant.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=homes.ROOT,
                env=environment(contestant, url, folder), start_new_session=True,
            )  # fmt: skip
        self._rest = b""
        try:
            self._answer(_READY_SECONDS)
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, within: float = 60.0, **values: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(f"{do}: the client has ended: {tail(self.log)}") from error
        answer = self._answer(within)
        if "error" in answer:
            raise Failed(f"{do}: {answer['error']}")
        return answer

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise Failed(f"the client did not answer within {seconds:.0f} s: {tail(self.log)}")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise Failed(f"the client has ended: {tail(self.log)}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        stop(self._process, politely=False)
        self._process.stdout.close()


class Workers:
    """One or more worker processes of a contestant, with a folder of their own for counts."""

    def __init__(self, contestant: Contestant, url: str, folder: Path, part: str = "drain", number: int = 1) -> None:
        self.run = folder / "run"
        shutil.rmtree(self.run, ignore_errors=True)
        self.run.mkdir()
        self.log = folder / "worker.log"
        with self.log.open("ab") as log:
            self._processes = [
                subprocess.Popen(
                    [*contestant.command(), "work"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=homes.ROOT,
                    env=environment(contestant, url, self.run, part), start_new_session=True,
                )
                for _ in range(number)
            ]  # fmt: skip

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            stop(process, politely=True)

    def counts(self) -> Counts:
        found = [_read_counts(path) for path in self.run.glob("count.*")]
        found = [one for one in found if one.calls]
        if not found:
            return Counts()
        return Counts(sum(one.calls for one in found), min(o.first for o in found), max(o.last for o in found))

    def wait_for(self, calls: int, seconds: float) -> Counts:
        """Until the handlers were called so often."""
        end = time.monotonic() + seconds
        while (counts := self.counts()).calls < calls:
            if time.monotonic() > end:
                raise Failed(f"only {counts.calls} of {calls} jobs after {seconds:.0f} s: {tail(self.log)}")
            self.check()
            time.sleep(_POLL_SECONDS)
        return counts

    def check(self) -> None:
        if all(process.poll() is not None for process in self._processes):
            raise Failed(f"the worker has ended: {tail(self.log)}")

    def delays(self, since: float) -> list[float]:
        """Of the jobs stamped from this moment on."""
        found = []
        for path in self.run.glob("delays.*"):
            for line in path.read_text().splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and len(words) == 2 and float(words[0]) >= since:
                    found.append(float(words[1]))
        return found

    def usage(self) -> Usage:
        sessions = {process.pid for process in self._processes}
        return usage(lambda entry: entry.session in sessions)


def _read_counts(path: Path) -> Counts:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Counts()
    return Counts(*LAYOUT.unpack(data)) if len(data) == LAYOUT.size else Counts()


def _bring_scripts(contestant: Contestant) -> None:
    """Node looks for packages beside the script, so the script goes to them."""
    if contestant.home is not None and contestant.script.endswith(".mjs"):
        for name in (contestant.script, "protocol.mjs"):
            shutil.copy(Path(__file__).parent / "peers" / name, homes.folder(contestant.home) / name)


def stop(process: "subprocess.Popen[bytes]", *, politely: bool) -> None:
    """End a process we started and everything in its session; workers are asked first."""
    for number in ([signal.SIGTERM] if politely else []) + [signal.SIGKILL]:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)


def tail(path: Path, characters: int = 300) -> str:
    """The end of a log, without the paths of this machine: it may be shown in the docs."""
    text = path.read_text(errors="replace").strip() if path.exists() else ""
    text = text.replace(f"{homes.scratch()}/", "").replace(f"{homes.ROOT}/", "")
    return " ".join(text[-characters:].split()) or "it said nothing"


@dataclass(frozen=True, slots=True)
class Entry:
    """One process of /proc."""

    pid: int
    parent: int
    session: int
    own: float
    """CPU seconds."""
    children: float
    """CPU seconds of children that have ended."""


def entries() -> Iterable[Entry]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        words = text.rpartition(")")[2].split()
        user, system, waited_user, waited_system = (int(word) / _TICK for word in words[11:15])
        yield Entry(int(path.parent.name), int(words[1]), int(words[3]), user + system, waited_user + waited_system)


def usage(belongs: Any) -> Usage:
    """Summed over the processes of /proc that belong; nothing where there is no /proc."""
    mine = [entry for entry in entries() if belongs(entry)]
    memory = [_memory(entry.pid) for entry in mine]
    return Usage(
        sum(entry.own + entry.children for entry in mine), sum(now for now, _ in memory), sum(at for _, at in memory)
    )


def _memory(pid: int) -> tuple[int, int]:
    """Resident bytes now and at the most."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    told = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return int(told.get("VmRSS", 0)) * 1024, int(told.get("VmHWM", 0)) * 1024
