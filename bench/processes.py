"""The processes the harness starts: clients controlled by JSON lines, workers, and their CPU and memory from /proc."""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
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


class MeasurementFailed(Exception):
    """A contestant did not complete a measure; the message is shown as the reason."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Handler calls so far in all worker processes; first and last are monotonic times."""

    calls: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals over several processes: CPU seconds so far, resident bytes now, peak resident bytes."""

    cpu: float = 0.0
    resident: int = 0
    peak: int = 0


def environment(contestant: Contestant, url: str, run: Path, part: str = "drain") -> dict[str, str]:
    """Environment variables of a process. A peer can import bench and its own packages, but not detent."""
    paths = [str(homes.ROOT), *([str(homes.ROOT / "src")] if contestant.ours else [])]
    options = {"BENCH_URL": url, "BENCH_RUN": str(run), "BENCH_PART": part, "BENCH_VARIANT": contestant.variant}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore", **options}


class Client:
    """The contestant's client process, controlled by JSON lines."""

    def __init__(self, contestant: Contestant, url: str, folder: Path) -> None:
        _copy_node_scripts(contestant)
        self.log = folder / "client.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                contestant.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=homes.ROOT,
                env=environment(contestant, url, folder), start_new_session=True,
            )  # fmt: skip
        self._buffer = b""
        try:
            self._read_answer(_READY_SECONDS)
        except BaseException:
            self.close()
            raise

    def request(self, do: str, within: float = 60.0, **values: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; raises MeasurementFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise MeasurementFailed(f"{do}: the client has ended: {tail(self.log)}") from error
        answer = self._read_answer(within)
        if "error" in answer:
            raise MeasurementFailed(f"{do}: {answer['error']}")
        return answer

    def _read_answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise MeasurementFailed(f"the client did not answer within {seconds:.0f} s: {tail(self.log)}")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise MeasurementFailed(f"the client has ended: {tail(self.log)}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        stop(self._process, graceful=False)
        self._process.stdout.close()


class Workers:
    """One or more worker processes of a contestant, with a folder for their counts."""

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
            stop(process, graceful=True)

    def counts(self) -> Counts:
        counts = [_read_counts(path) for path in self.run.glob("count.*")]
        counts = [count for count in counts if count.calls]
        if not counts:
            return Counts()
        return Counts(sum(c.calls for c in counts), min(c.first for c in counts), max(c.last for c in counts))

    def wait_for(self, calls: int, seconds: float) -> Counts:
        """Wait until the handlers were called this many times."""
        end = time.monotonic() + seconds
        while (counts := self.counts()).calls < calls:
            if time.monotonic() > end:
                raise MeasurementFailed(f"only {counts.calls} of {calls} jobs after {seconds:.0f} s: {tail(self.log)}")
            self.check()
            time.sleep(_POLL_SECONDS)
        return counts

    def check(self) -> None:
        """Raise MeasurementFailed if all worker processes have ended."""
        if all(process.poll() is not None for process in self._processes):
            raise MeasurementFailed(f"the worker has ended: {tail(self.log)}")

    def delays(self, since: float) -> list[float]:
        """Pickup delays of the jobs enqueued at this monotonic time or later."""
        delays = []
        for path in self.run.glob("delays.*"):
            for line in path.read_text().splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and len(words) == 2 and float(words[0]) >= since:
                    delays.append(float(words[1]))
        return delays

    def usage(self) -> Usage:
        sessions = {process.pid for process in self._processes}
        return usage(lambda entry: entry.session in sessions)


def _read_counts(path: Path) -> Counts:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Counts()
    return Counts(*LAYOUT.unpack(data)) if len(data) == LAYOUT.size else Counts()


def _copy_node_scripts(contestant: Contestant) -> None:
    """Copy a Node script into the peer's environment, because Node searches packages next to the script."""
    if contestant.home is not None and contestant.script.endswith(".mjs"):
        for name in (contestant.script, "protocol.mjs"):
            shutil.copy(Path(__file__).parent / "peers" / name, homes.folder(contestant.home) / name)


def stop(process: "subprocess.Popen[bytes]", *, graceful: bool) -> None:
    """Kill a process and its session; graceful: send SIGTERM first and wait."""
    for number in ([signal.SIGTERM] if graceful else []) + [signal.SIGKILL]:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)


def tail(path: Path, characters: int = 300) -> str:
    """The end of a log file, without absolute paths, because it may appear in the docs."""
    text = path.read_text(errors="replace").strip() if path.exists() else ""
    text = text.replace(f"{homes.scratch()}/", "").replace(f"{homes.ROOT}/", "")
    return " ".join(text[-characters:].split()) or "no output"


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One process of /proc."""

    pid: int
    parent: int
    session: int
    cpu: float
    """CPU seconds."""
    children_cpu: float
    """CPU seconds of children that have ended."""


def entries() -> Iterable[ProcessEntry]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        words = text.rpartition(")")[2].split()
        user, system, waited_user, waited_system = (int(word) / _TICK for word in words[11:15])
        yield ProcessEntry(
            int(path.parent.name), int(words[1]), int(words[3]), user + system, waited_user + waited_system
        )


def usage(matches: Callable[[ProcessEntry], bool]) -> Usage:
    """Totals over the matching processes; zero on machines without /proc."""
    matching = [entry for entry in entries() if matches(entry)]
    memory = [_memory(entry.pid) for entry in matching]
    cpu = sum(entry.cpu + entry.children_cpu for entry in matching)
    return Usage(cpu, sum(resident for resident, _ in memory), sum(peak for _, peak in memory))


def _memory(pid: int) -> tuple[int, int]:
    """Resident bytes now and at peak."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return int(sizes.get("VmRSS", 0)) * 1024, int(sizes.get("VmHWM", 0)) * 1024
