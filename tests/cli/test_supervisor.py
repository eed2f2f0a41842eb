"""`detent worker --processes N` and `--reload`, with real processes."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import detent
from detent import Detent
from detent.cli.run.supervisor import SupervisionOptions, Supervisor, merge_pages
from detent.client.sync import SyncHandle
from support.pids import gone
from support.waiting import until, until_now

pytestmark = pytest.mark.anyio
APP = """
import asyncio, os, time
from detent import Context, Detent
app = Detent("sqlite:///jobs.db")
VERSION = 1

@app.job("version")
async def version() -> int:
    return VERSION

@app.job("pid")
def pid(ctx, number: int, count: int) -> int:
    open(f"started {number}", "w").close()
    while len([name for name in os.listdir() if name.startswith("started")]) < count:
        time.sleep(0.01)
    return os.getpid()

@app.job("hold")
async def hold(ctx: Context) -> None:
    open("holding", "w").close()
    await asyncio.sleep(600)
"""


class Shell:
    """A folder with an application, and the supervisors started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "shop.py"
        self.file.write_text(APP)
        self.log = folder / "log"
        self.app = Detent(f"sqlite:///{folder / 'jobs.db'}")
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        source = str(Path(detent.__file__).parent.parent)
        command = [sys.executable, "-m", "detent", "worker", str(self.file), *options]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=os.environ | {"PYTHONPATH": source}, stdout=log, stderr=log
            )
        self.started.append(process)
        return process

    def pids(self) -> list[int]:
        """The pids of the worker processes, dead ones included."""
        return (
            []
            if not self.log.exists()
            else [int(pid) for pid in re.findall(r"has the pid (\d+)", self.log.read_text())]
        )

    def enqueue(self, job_type: str, **payload: int) -> SyncHandle[object]:
        from detent.engine import Submission

        async def submit() -> str:
            return (await (await self.app.ready()).jobs.submit(Submission(job_type, payload))).job.id

        return self.app.sync.handle(self.app.sync.run(submit()))

    def get(self, path: str) -> tuple[int, str]:
        port = until_now(lambda: re.search(r"metrics at http://127\.0\.0\.1:(\d+)/", self.log.read_text()))[1]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_until_healthy(self) -> None:
        until_now(lambda: self.get("/healthz")[0] == 200)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        for process in shell.started:
            process.kill()
            process.wait()
        for pid in shell.pids():
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        shell.app.sync.close()


@pytest.mark.long
def test_processes_share_the_work_are_restarted_and_stop_together(shell: Shell) -> None:
    supervisor = shell.start("--processes", "2", "--slots", "1", "--metrics-port", "0", "--grace-seconds", "1")
    shell.wait_until_healthy()
    assert shell.get("/healthz") == (200, "2 of 2 worker processes answer\n")
    handles = [shell.enqueue("pid", number=number, count=2) for number in range(2)]
    first = {int(str(handle.result(timeout=30))) for handle in handles}
    assert first == set(shell.pids()), "both jobs ran at the same time, each in a process with one slot"
    page = shell.get("/metrics")[1]
    assert page.count("# TYPE detent_execution_seconds histogram") == 1 == page.count("\ndetent_slots 2.0")
    for number in (1, 2):
        assert re.search(rf'detent_execution_seconds_count{{process="{number}",.*job_type="pid".*}} 1\.0', page)
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    until_now(lambda: len(shell.pids()) == 3)
    shell.wait_until_healthy()
    held = shell.enqueue("hold")
    until_now((shell.folder / "holding").exists)
    supervisor.terminate()
    assert supervisor.wait(30) == 0
    assert all(map(gone, shell.pids()))
    job = held.job()
    assert (job.status, job.failures) == ("queued", 0)


@pytest.mark.drill
@pytest.mark.parametrize("end", ["second signal", "supervisor killed"])
def test_the_processes_end_without_their_grace(shell: Shell, end: str) -> None:
    """By a second signal; and when the supervisor is killed they do not stay behind, but get their grace."""
    seconds = "600" if end == "second signal" else "1"
    supervisor = shell.start("--processes", "2", "--grace-seconds", seconds)
    held = shell.enqueue("hold")
    until_now((shell.folder / "holding").exists)
    if end == "second signal":
        supervisor.terminate()
        until_now(lambda: "stopping: 1 jobs are still running" in shell.log.read_text())
        assert supervisor.poll() is None
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(30) == 0
    else:
        supervisor.kill()
    until_now(lambda: all(map(gone, shell.pids())))
    assert (held.job().status, held.job().failures) == ("queued", 0)


@pytest.mark.drill
def test_a_signal_that_the_processes_get_themselves_counts_once(shell: Shell) -> None:
    """As systemd does it by default: SIGTERM to every process of the unit."""
    supervisor = shell.start("--processes", "1", "--reload", "--grace-seconds", "600")
    shell.enqueue("hold")
    until_now((shell.folder / "holding").exists)
    for pid in (supervisor.pid, *shell.pids()):
        os.kill(pid, signal.SIGTERM)
    until_now(lambda: "stopping: 1 jobs are still running" in shell.log.read_text())
    began = time.monotonic()
    until_now(lambda: time.monotonic() - began > 0.5)
    assert supervisor.poll() is None and not any(map(gone, shell.pids())), "the job keeps its grace"


@pytest.mark.drill
def test_reload_restarts_when_a_file_changes_and_survives_errors(shell: Shell) -> None:
    shell.start("--reload")
    assert shell.enqueue("version").result(timeout=30) == "1"
    shell.file.write_text("this is no Python")
    until_now(lambda: "next start when a file changes" in shell.log.read_text())
    shell.file.write_text(APP.replace("VERSION = 1", "VERSION = 2"))
    assert shell.enqueue("version").result(timeout=30) == "2"


@pytest.mark.drill
def test_until_idle_ends_all_and_a_wrong_application_is_not_tried_again(shell: Shell) -> None:
    handle = shell.enqueue("version")
    assert shell.start("--processes", "2", "--until-idle").wait(60) == 0
    assert handle.status() == "succeeded"
    shell.file.write_text("this is no Python")
    assert shell.start("--processes", "2").wait(60) == 1
    assert "APP_FAILED" in shell.log.read_text()


CHILD = """
import os, socket, sys, time
try:
    os.mkdir("first")
    first = True
except FileExistsError:
    first = False
    os.mkdir(str(os.getpid()))
if sys.argv[1] == "one fails" and first:
    sys.exit(3)
if sys.argv[1] == "all fail":
    sys.exit(4)
link = socket.socket(fileno=int(os.environ["DETENT_SUPERVISOR_FD"]))
if sys.argv[1] != "starts slowly":
    link.send(b"1.5")
    link.recv(1)
    sys.exit(0)
time.sleep(600)
"""


async def supervise(folder: Path, act: str, monkeypatch: pytest.MonkeyPatch, wait_for: int) -> tuple[Supervisor, int]:
    """Two processes that run CHILD, stopped when so many have started; a stop that waits for a kill takes too long."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys.modules[Supervisor.__module__], "_FIRST_PAUSE", 0.01)
    supervisor = Supervisor(SupervisionOptions(processes=2), [sys.executable, "-S", "-c", CHILD, act])
    running = asyncio.create_task(supervisor.run())
    if wait_for:
        await until(lambda: len(list(folder.iterdir())) >= wait_for)
        await until(lambda: act != "one fails" or all(member.ready for member in supervisor._members.values()))
        supervisor.stop()
    return supervisor, await asyncio.wait_for(running, 4)


async def test_a_process_that_fails_at_its_first_start_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on; if none has ever worked, all stop. The grace is that of the process."""
    supervisor, code = await supervise(tmp_path, "one fails", monkeypatch, wait_for=3)
    assert code == 0 and {member.grace_seconds for member in supervisor._members.values()} == {1.5}
    assert (await supervise(tmp_path, "all fail", monkeypatch, wait_for=0))[1] == 4


async def test_a_stop_does_not_wait_for_a_process_that_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await supervise(tmp_path, "starts slowly", monkeypatch, wait_for=2))[1] == 0


def test_pages_of_several_processes_become_one() -> None:
    def page(number: int) -> str:
        return (
            "# HELP jobs Jobs.\n# TYPE jobs gauge\njobs 7.0\n"
            "# HELP seconds Seconds in this process.\n# TYPE seconds histogram\n"
            f'seconds_bucket{{le="1.0"}} {number}.0\nseconds_count {number}.0\n'
        )

    assert merge_pages({1: page(1), 2: page(2)}) == (
        "# HELP jobs Jobs.\n# TYPE jobs gauge\njobs 7.0\n"
        "# HELP seconds Seconds in this process.\n# TYPE seconds histogram\n"
        'seconds_bucket{process="1",le="1.0"} 1.0\nseconds_count{process="1"} 1.0\n'
        'seconds_bucket{process="2",le="1.0"} 2.0\nseconds_count{process="2"} 2.0\n'
    )
