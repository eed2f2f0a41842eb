"""`detent worker --processes N` and `--reload`: starts worker processes, restarts those that die, stops all of them."""

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from detent.cli.options import option
from detent.observability.metrics_server import UNIX, MetricsServer
from detent.system.backoff import Backoff
from detent.system.tasks import wait_for_event
from detent.worker.shutdown import SUPERVISOR_FD

log = logging.getLogger("detent.supervisor")
_METRICS_SOCKET = "DETENT_SUPERVISOR_METRICS"
"""The environment variable with the socket on which a worker process serves its metrics for the supervisor."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY_SECONDS = 10.0
"""A process that has run for so long is restarted without a pause when it dies."""
_EXTRA_SECONDS = 5.0
"""A process that has not ended so long after its grace is killed."""
_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 2.0
_UNWATCHED = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True, slots=True)
class SupervisionOptions:
    """The options of `detent worker` that the supervisor takes over if there is one."""

    processes: Annotated[int, option("How many worker processes to run; those that die are restarted.", min=1)] = 1
    reload: Annotated[bool, option("Restart when a Python file below this folder or that of APP changes.")] = False
    metrics_port: Annotated[
        int | None, option("Serve GET /metrics for Prometheus and GET /healthz on this port.", min=0, max=65_535)
    ] = None
    metrics_host: Annotated[str, option("The address for --metrics-port.")] = "127.0.0.1"

    @property
    def is_needed(self) -> bool:
        """False in a process that has a supervisor."""
        return (self.processes > 1 or self.reload) and SUPERVISOR_FD not in os.environ

    def run(self, app: str, *, until_idle: bool) -> int:
        """Run the command line of this process in several processes, or in one that is restarted when files change."""
        file = Path(app.rpartition(":")[0] or app)
        watched = [Path.cwd(), *([file.resolve().parent] if file.suffix == ".py" else [])] if self.reload else []
        return asyncio.run(Supervisor(self, watched=watched, until_idle=until_idle).run())

    def metrics_options(self) -> dict[str, Any]:
        """Where a worker serves its metrics: as requested, or on a socket for its supervisor."""
        if (path := os.environ.pop(_METRICS_SOCKET, None)) is not None:
            return {"metrics_host": f"{UNIX}{path}", "metrics_port": 0}
        return {"metrics_host": self.metrics_host, "metrics_port": self.metrics_port}


@dataclass(slots=True)
class _Member:
    """One worker process. `link` is closed by either side when it ends."""

    process: asyncio.subprocess.Process
    link: socket.socket
    started: float
    ready: bool = False
    grace_seconds: float = 0.0
    """Sent by the process when it is ready: its settings may be part of the application."""
    restarting: bool = False
    """True: it ends because files have changed."""


class Supervisor:
    """Runs a command in N processes until SIGTERM or SIGINT; a second signal does not wait.

    command: without it, that of this process: `detent`, `python -m detent` or `manage.py detent`.
    watched: folders; when a Python file below them changes, all processes are restarted in good order.
    until_idle: processes that end with 0 are not started again.
    """

    def __init__(
        self,
        options: SupervisionOptions,
        command: Iterable[str] | None = None,
        *,
        watched: Iterable[Path] = (),
        until_idle: bool = False,
    ) -> None:
        self._command = [sys.executable, *sys.orig_argv[1:]] if command is None else [*command]
        self._processes = options.processes
        self._until_idle = until_idle
        self._watched = tuple(watched)
        self._members: dict[int, _Member] = {}
        self._was_ready = False
        """True: at least one process has worked, so that application and options are right."""
        self._failed_starts: set[int] = set()
        self._stops = 0
        self._changed = asyncio.Event()
        """Set by a stop, and by a change of the watched files."""
        self._killers: set[asyncio.Task[None]] = set()
        host, port = options.metrics_host, options.metrics_port
        self._metrics = None if port is None else MetricsServer(self._page, host, port, self._health)

    async def run(self) -> int:
        """0 if every process ended with 0, else the exit code of one that did not."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        with tempfile.TemporaryDirectory(prefix="detent-") as folder:
            self._folder = Path(folder)
            if self._metrics is not None:
                await self._metrics.open()
            watcher = asyncio.create_task(self._watch()) if self._watched else None
            try:
                codes = await asyncio.gather(*(self._keep_running(number) for number in range(self._processes)))
            finally:
                if watcher is not None:
                    watcher.cancel()
                if self._metrics is not None:
                    self._metrics.close()
        return next((code for code in codes if code), 0)

    def stop(self) -> None:
        """Stop all processes. The first call gives them their grace, the second does not."""
        self._stops += 1
        self._changed.set()
        for member in self._members.values():
            self._end(member)

    def _end(self, member: _Member) -> None:
        with suppress(OSError):
            member.link.send(bytes([max(1, min(self._stops, 2))]))
        if not member.ready:  # it does not read the link yet
            with suppress(ProcessLookupError):
                member.process.terminate()
        grace_seconds = member.grace_seconds if self._stops < 2 else 0.0
        killer = asyncio.create_task(self._kill_after(member, grace_seconds + _EXTRA_SECONDS))
        self._killers.add(killer)
        killer.add_done_callback(self._killers.discard)

    async def _kill_after(self, member: _Member, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if member.process.returncode is None:
            log.error("worker process %d did not end, it is killed", member.process.pid)
            member.process.kill()

    async def _keep_running(self, number: int) -> int:
        """Start a process again and again until the supervisor stops. Returns the last exit code."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, sleep=partial(wait_for_event, self._changed))
        while True:
            self._changed.clear()
            member = await self._start(number)
            code = await self._wait(member)
            if self._stops or (code == 0 and self._until_idle and not member.restarting):
                return code
            if member.restarting:
                continue
            self._failed_starts.add(number)
            if not self._was_ready and not self._watched and len(self._failed_starts) == self._processes:
                self.stop()  # wrong from the start: an option, the application, the URL
                return code
            if asyncio.get_running_loop().time() - member.started > _STEADY_SECONDS:
                backoff.reset()
            if member.ready or not self._watched:
                log.warning("worker process %d ended with %d, next start in %g s", number + 1, code, backoff.seconds)
                await backoff.pause()
            else:
                log.warning("worker process %d ended with %d, next start when a file changes", number + 1, code)
                await self._changed.wait()
            if self._stops:
                return code

    async def _start(self, number: int) -> _Member:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        environment = os.environ | {SUPERVISOR_FD: str(theirs.fileno())}
        if self._metrics is not None:
            environment[_METRICS_SOCKET] = str(self._socket(number))
        process = await asyncio.create_subprocess_exec(
            *self._command, env=environment, pass_fds=(theirs.fileno(),), process_group=0
        )
        theirs.close()
        member = self._members[number] = _Member(process, ours, asyncio.get_running_loop().time())
        log.info("worker process %d has the pid %d", number + 1, process.pid)
        if self._stops:
            self._end(member)
        return member

    async def _wait(self, member: _Member) -> int:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            if message := await loop.sock_recv(member.link, 64):
                member.ready = self._was_ready = True
                member.grace_seconds = float(message)
        code = await member.process.wait()
        member.link.close()
        if code == -signal.SIGTERM and self._stops and not member.ready:
            return 0
        return code if code >= 0 else 128 - code

    async def _watch(self) -> None:
        before = await asyncio.to_thread(_modified, self._watched)
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = await asyncio.to_thread(_modified, self._watched)
            if now != before:
                names = sorted({path.name for path, _ in now ^ before})
                log.info("%s changed, restarting", ", ".join(names[:3]) + (" …" if len(names) > 3 else ""))
                self._changed.set()
                for member in self._members.values():
                    member.restarting = member.process.returncode is None
                    self._end(member)
            before = now

    def _socket(self, number: int) -> Path:
        return self._folder / f"{number + 1}.sock"

    async def _health(self) -> tuple[bool, str]:
        """Healthy if every process answers."""
        answers = await asyncio.gather(*(self._get(number, "/healthz") for number in range(self._processes)))
        answering = sum(answer is not None for answer in answers)
        return answering == self._processes, f"{answering} of {self._processes} worker processes answer"

    async def _page(self) -> tuple[bytes, str]:
        answers = await asyncio.gather(*(self._get(number, "/metrics") for number in range(self._processes)))
        pages = {number + 1: answer for number, answer in enumerate(answers) if answer is not None}
        if not pages:
            raise RuntimeError("no worker process answers")
        content_type = next(iter(pages.values()))[1]
        return merge_pages({number: page for number, (page, _) in pages.items()}).encode(), content_type

    async def _get(self, number: int, path: str) -> tuple[str, str] | None:
        """(body, content type) of a page of one process; None if it does not answer."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self._socket(number)))
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                    answer = (await reader.read(-1)).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        head, _, body = answer.partition("\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        return (body, fields.get("Content-Type", "")) if " 200 " in head.split("\r\n")[0] else None


def merge_pages(pages: Mapping[int, str]) -> str:
    """One Prometheus page of those of several processes.

    What is counted in the log is the same in all of them and taken from the first. A metric whose help text speaks of
    "this process" is taken from each, with the label `process`.
    """
    families: dict[str, list[str]] = {}
    for number, page in pages.items():
        name, per_process, is_new = "", False, True
        for line in page.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                per_process, is_new = "this process" in line, name not in families
                families.setdefault(name, [])
            if line.startswith("#") and is_new:
                families[name].append(line)
            elif not line.startswith("#") and (per_process or is_new):
                families[name].append(_labelled(line, number) if per_process else line)
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _labelled(line: str, number: int) -> str:
    name, brace, rest = line.partition("{")
    if brace:
        return f'{name}{{process="{number}",{rest}'
    name, _, value = line.partition(" ")
    return f'{name}{{process="{number}"}} {value}'


def _modified(folders: Iterable[Path]) -> set[tuple[Path, int]]:
    """The Python files and settings below these folders, with the times of their last change."""
    found = set()
    for folder in folders:
        for root, names, files in os.walk(folder):
            is_environment = "pyvenv.cfg" in files
            names[:] = [n for n in names if not is_environment and n not in _UNWATCHED and not n.startswith(".")]
            for file in [] if is_environment else files:
                if file.endswith((".py", ".toml")):
                    with suppress(OSError):
                        path = Path(root, file)
                        found.add((path, path.stat().st_mtime_ns))
    return found
