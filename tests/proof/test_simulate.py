"""The simulator: hundreds of seeds without a violation, the same run for the same seed, and its scheduler."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from detent.cli import run as run_cli
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move
from detent.proof.controlled_store import ManualClock
from detent.proof.explore.handlers import Scenario
from detent.proof.planted_bugs import BUGS
from detent.proof.simulate.config import FAULTS, Config
from detent.proof.simulate.loop import MS, SECOND, Process, new_loop
from detent.proof.simulate.simulate import Run, Summary, run_config, run_seed, simulate
from detent.proof.simulate.story import in_words, story_of
from support.proof import recorded_runs

SEEDS = 200
BLOCKS = SEEDS // recorded_runs.SEEDS
"""The first block is run by `make test`, the others by `make long`."""
REGRESSIONS = Path(__file__).with_name("regression_seeds.txt")
COMMANDS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
PASSING = {edge.source for c in CONTRACTS.values() for edge in c.edges if edge.move is Move.FOLLOW}


@cache
def runs(block: int) -> list[Run]:
    """The runs of one block of seeds, cached: one test checks each block, another the totals."""
    size = recorded_runs.SEEDS
    return [run_seed(seed) for seed in range(block * size, (block + 1) * size)]


@pytest.mark.parametrize("block", [pytest.param(n, marks=pytest.mark.long) if n else n for n in range(BLOCKS)])
def test_no_invariant_is_broken(block: int) -> None:
    for run in runs(block):
        assert run.ok, f"detent simulate --seeds 1 --seed {run.config.seed}: {run.violations[:3]}"


@pytest.mark.long
def test_the_seeds_cover_all_faults_and_edges() -> None:
    all_runs = [run for block in range(BLOCKS) for run in runs(block)]
    faults = sum((Counter(run.faults) for run in all_runs), Counter())
    assert sum(run.events for run in all_runs) >= 200 * len(all_runs)
    assert faults.total() >= 3 * len(all_runs) and set(faults) == set(FAULTS)
    only_with_stream = {"stream restart", "stream outage", "orchestrator crash"}
    assert min(number for name, number in faults.items() if name not in only_with_stream) > len(all_runs) / 4, faults
    assert min(faults[name] for name in only_with_stream) > len(all_runs) / 10, faults
    assert sum(run.stale_refused for run in all_runs) > len(all_runs) / 8, "late results are refused"
    taken = {edge for run in all_runs for edge in run.edges}
    missing = {edge for edge in _edges_of_all_contracts() if edge not in taken}
    assert len(missing) <= 2, missing


def _edges_of_all_contracts() -> set[tuple[str, str | None, str, str]]:
    """Edges that a simulation can take; out of a status with a follow-up edge, only the follow-up edge is taken."""
    return {
        (name, edge.source, edge.event, edge.target)
        for name, contract in CONTRACTS.items()
        for edge in contract.edges
        if edge.move
        and edge.source not in contract.unreachable
        and not (edge.source in PASSING and edge.move is not Move.FOLLOW)
    }


def _regressions() -> list[tuple[int, str | None]]:
    lines = [line.split() for line in REGRESSIONS.read_text().splitlines() if not line.startswith("#")]
    return [(int(seed), None if contract == "-" else contract) for seed, contract, *why in lines if why]


@pytest.mark.parametrize(("seed", "contract"), _regressions())
def test_regression_seeds(seed: int, contract: str | None) -> None:
    run = run_seed(seed, contract=contract)
    assert run.ok, run.violations[:3]


@pytest.mark.long
def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    program = (
        "from detent.proof.simulate.simulate import run_seed\n"
        "for seed in (3, 4):\n"
        "    run = run_seed(seed, keep_trace=True)\n"
        "    print(run.digest, len(run.trace), run.events, sorted(run.faults.items()))\n"
    )
    outputs = {_python(program, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(outputs) == 1 and len(outputs.pop().splitlines()) == 2


def _python(program: str, hash_seed: str, timeout: float = 120) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=timeout
    )
    return done.stdout


def test_runs_are_as_recorded_on_every_python() -> None:
    """The file was written by one version of Python. `make recorded-runs` writes it after a change of the engine."""
    assert recorded_runs.lines(runs(0)) == recorded_runs.FILE.read_text().splitlines()


def test_another_seed_gives_another_run() -> None:
    assert len({run_seed(seed).digest for seed in range(3)}) == 3


def test_a_config_determines_the_run() -> None:
    config = Config.draw(5)
    assert run_config(config).digest == run_config(config).digest
    assert run_config(config).seconds >= config.seconds


def test_without_faults_nothing_is_refused_as_stale() -> None:
    config = replace(Config.draw(2, "standard"), jobs=20, operators=0, schedules=0, faults=())
    run = run_config(config)
    assert run.ok and not run.faults and not run.stale_refused and run.jobs >= 20


def test_smaller_configs_are_smaller() -> None:
    config = Config.draw(0)
    for smaller in config.smaller():
        assert smaller != config and smaller.seed == config.seed
        assert smaller.jobs <= config.jobs and set(smaller.faults) <= set(config.faults)
    assert config.reseeded(1).seed != config.seed


def test_a_summary_adds_up() -> None:
    summary = simulate(range(2))
    assert isinstance(summary, Summary) and summary.ok
    assert summary.seeds == 2 and summary.events == sum(run_seed(seed).events for seed in range(2))
    assert set(summary.as_dict()) >= {"ok", "seeds", "events", "violations", "stale_refused"}


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["simulate", "--seeds", "1", "--seed", "7", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert run_cli(["simulate", "--seeds", "1", "--seed", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert first["ok"] is True and first["seeds"] == 1 and first["events"] > 0 and first["violations"] == []
    assert first["digest"] == run_seed(7).digest


def test_log_lines_of_a_simulation_are_not_printed() -> None:
    """In a process of its own: without a logging handler, warnings go to stderr."""
    command = [sys.executable, "-m", "detent", "simulate", "--seeds", "1"]
    done = [
        subprocess.run([*command, *more], capture_output=True, text=True, timeout=120) for more in ([], ["--verbose"])
    ]
    assert [process.returncode for process in done] == [0, 0], done
    assert done[0].stderr == "" and done[0].stdout == done[1].stdout
    assert "recovered from the loss of" in done[1].stderr


def test_the_command_detects_a_planted_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["simulate", "--seeds", "3", "--bug", "event-without-row", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False and data["violations"][0]["rule"] == "version-differs" and data["shrunk"]["jobs"] <= 2
    assert run_cli(["simulate", "--seeds", "0", "--bug", "lost-submit"]) == 1
    assert "1. job-" in capsys.readouterr().out, "a bug that no seed detects is searched by the explorer"
    assert run_cli(["simulate", "--seeds", "0", "--explore", "--contract", "standard", "--states", "30"]) == 0
    searches = [line for line in capsys.readouterr().out.splitlines() if line.startswith("explored")]
    assert [line.partition(": ")[0] for line in searches] == [f"explored standard, {each.words}" for each in Scenario]


def test_a_story_tells_what_concerns_the_job_that_broke_the_rule() -> None:
    trace = [
        "  0.100000 s  producer-0: job 1 (formal) job_created (Queued); job 2 (men) created (queued)",
        "  0.200000 s  fault: stall: worker-1",
        "  0.300000 s  worker-1: job 3 (formal, child of job 1) job_created (Queued)",
        "  0.400000 s  worker-1 received job 2 for execution 1",
        "  0.500000 s  operator-0 signal job 12",
        "  0.600000 s  worker-2: job 2 completed (running -> succeeded); job 3 job_running (Queued -> Running)",
        "  0.700000 s  no more faults from here on",
    ]
    for job in (1, 3):
        assert story_of(trace, job) == [
            "  0.100000 s  producer-0: job 1 (formal) job_created (Queued)",
            *trace[1:3],
            "  0.600000 s  worker-2: job 3 job_running (Queued -> Running)",
            trace[6],
        ]
    assert story_of(trace, None) == trace
    assert story_of(trace, 12) == [trace[1], trace[4], trace[6]]
    assert in_words(trace[4]) == "  0.500000 s  operator-0 wants to signal job 12"
    assert in_words("1.0 s  operator-1 cancel ended") == "1.0 s  operator-1 wants to cancel a job that has ended"
    assert in_words("1.0 s  fault: heart: worker-1") == "1.0 s  fault: late heartbeats: worker-1"
    assert in_words(trace[0]) == trace[0]


def test_the_command_lists_the_bugs_and_refuses_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # lines are not wrapped then, as in a pipe
    assert run_cli(["simulate", "--list-bugs", "--json"]) == 0
    assert [bug["name"] for bug in json.loads(capsys.readouterr().out)["bugs"]] == list(BUGS)
    assert run_cli(["simulate", "--list-bugs"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(["$ detent simulate --list-bugs", *lines, "```"]) in COMMANDS_PAGE.read_text(), "list all bugs"
    assert run_cli(["simulate", "--bug", "no-such-bug"]) == 2
    assert run_cli(["simulate", "--contract", "no-such-contract"]) == 1
    assert run_cli(["simulate", "--seeds", "0"]) == 2


def test_the_loop_keeps_time_and_order() -> None:
    loop = new_loop(ManualClock())
    wakeups: list[tuple[str, float]] = []

    async def sleep_twice(name: str, seconds: float) -> None:
        for _ in range(2):
            await asyncio.sleep(seconds)
            wakeups.append((name, loop.time()))

    process = Process(loop, "sleepers")
    process.start(sleep_twice("slow", 3))
    process.start(sleep_twice("quick", 2))
    loop.run(10 * SECOND)
    assert wakeups == [("quick", 2), ("slow", 3), ("quick", 4), ("slow", 6)]
    assert loop.now == 10 * SECOND and loop.clock.mono == 10.0


def test_a_stalled_process_resumes_later_and_a_killed_one_never() -> None:
    """A task of the killed process runs nothing any more, not even its `finally` blocks."""
    loop = new_loop(ManualClock())
    wakeups: list[float] = []

    async def sleep_repeatedly() -> None:
        try:
            while True:
                await asyncio.create_task(asyncio.sleep(1))
                wakeups.append(loop.time())
        finally:
            if loop.is_running():
                wakeups.append(-1)

    process = Process(loop, "sleeper")
    process.start(sleep_repeatedly())
    loop.run(1 * SECOND)
    process.stall(4 * SECOND)
    loop.run(5 * SECOND)
    process.kill()
    loop.run(9 * SECOND)
    assert wakeups == [1, 5]
    loop.close()
    assert wakeups == [1, 5]


def test_the_loop_runs_what_asyncio_offers() -> None:
    """Timeouts, locks, groups and cancellation, in virtual time; threads are called at once."""
    loop, wakeups = new_loop(ManualClock()), []

    async def use_asyncio() -> str:
        event = asyncio.Event()
        loop.call_later(2, event.set)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await event.wait()
        wakeups.append(loop.time())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(seconds, seconds)) for seconds in (2, 1)]
        wakeups.append(loop.time())
        sleeper = asyncio.create_task(asyncio.sleep(60))
        done, waiting = await asyncio.wait([sleeper], timeout=1)
        assert not done and waiting == {sleeper}
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        return f"{await asyncio.to_thread(lambda: 'thread')} {[task.result() for task in tasks]}"

    task = Process(loop, "user").start(use_asyncio())
    loop.run(10 * SECOND)
    assert task.result() == "thread [2, 1]" and wakeups == [1.5, 3.5] and not loop.errors


def test_the_wall_clock_jumps_and_monotonic_time_does_not() -> None:
    loop = new_loop(ManualClock())
    wall = loop.clock.wall
    loop.run(SECOND)
    loop.jump_wall_clock(-30 * SECOND)
    assert loop.clock.wall == wall - 29 * SECOND and loop.clock.mono == 1.0
    assert loop.clock.highest == wall + SECOND
    loop.jump_wall_clock(MS)
    assert loop.clock.wall == wall - 29 * SECOND + MS


@pytest.mark.drill
def test_the_same_seed_gives_the_same_run_on_every_python(tmp_path: Path) -> None:
    """Each other version of Python on this machine gets an environment with Detent's own dependencies."""
    program = (
        "import logging\n"
        "logging.disable()\n"
        "from detent.proof.simulate.simulate import run_seed\n"
        "for seed in range(25):\n"
        "    print(seed, run_seed(seed).digest)\n"
    )
    outputs = {sys.version_info[:2]: _python(program, "0", timeout=1_200)}
    for version, interpreter in _other_pythons().items():
        folder = tmp_path / interpreter.name
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        install = [folder / "bin/python", "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", "."]
        subprocess.run(install, check=True, cwd=Path(__file__).parents[2])
        done = subprocess.run([folder / "bin/python", "-c", program], capture_output=True, text=True, check=True)
        outputs[version] = done.stdout
    assert len(outputs) > 1, "install a second version of Python to run this test"
    assert len(set(outputs.values())) == 1, outputs.keys()


def _other_pythons() -> dict[tuple[int, int], Path]:
    """The interpreters on PATH, and those of pyenv, that are new enough and not of this version."""
    ask = "import sys; print(*sys.version_info[:2])"
    folders = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    found: dict[tuple[int, int], Path] = {}
    for interpreter in (path for folder in folders for path in sorted(folder.glob("python3.[0-9][0-9]"))):
        done = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True)
        version = tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()
        if len(version) == 2 and (3, 11) <= version != sys.version_info[:2]:
            found.setdefault((version[0], version[1]), interpreter)
    return found


@pytest.mark.drill
def test_twenty_thousand_seeds() -> None:
    """Two processes at a time, for two cores: about an hour. Each prints its result when its seeds are done."""
    chunk = 500
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(_simulate, first, chunk) for first in range(0, 20_000, chunk)]
    assert sum(result.result()["events"] for result in results) >= 5_000_000


def _simulate(first: int, seeds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "detent", "simulate", "--json", "--seeds", str(seeds), "--seed", str(first)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    data: dict[str, Any] = json.loads(done.stdout)
    print(
        f"seeds {first} to {first + seeds - 1}: {data['jobs']} jobs, {data['events']} events, ok={data['ok']}",
        flush=True,
    )
    assert data["ok"] and done.returncode == 0, (data["violations"][:3], data["shrunk"])
    assert data["seeds"] == seeds
    return data
