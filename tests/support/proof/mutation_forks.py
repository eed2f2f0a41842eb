"""Runs functions in forks of this process, as many at once as there are cores."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

PROCESSES = int(os.environ.get("MUTATION_PROCESSES") or os.cpu_count() or 2)
WALL_SECONDS = 300
"""A fork that takes longer waits for something that does not come."""


def in_forks(
    tasks: Iterable[tuple[Any, Callable[[], str]]],
    report: Callable[[Any, str, float], None],
    wall_seconds: float = WALL_SECONDS,
) -> None:
    """Run each task in a fork. report: the key of the task, its answer (how it ended if it gave none), CPU seconds."""
    waiting = iter(tasks)
    running: dict[int, tuple[Any, int, float]] = {}
    more = True
    while more or running:
        while more and len(running) < PROCESSES:
            key, task = next(waiting, (None, None))
            if task is None:
                more = False
                break
            pipe, process = _start(task)
            running[pipe] = (key, process, time.monotonic() + wall_seconds)
        ready, _, _ = select.select(list(running), [], [], 1.0) if running else ([], [], [])
        for pipe in ready:
            key, process, _ = running.pop(pipe)
            answer = _read(pipe)
            _, status, usage = os.wait4(process, 0)
            ended = f"killed by {signal.Signals(status & 127).name}" if status & 127 else "killed by an exit"
            report(key, answer or ended, usage.ru_utime + usage.ru_stime)
        for _, process, until in running.values():
            if time.monotonic() > until:
                os.kill(process, signal.SIGKILL)  # closes its pipe


def _start(task: Callable[[], str]) -> tuple[int, int]:
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return read, process
    answer = ""
    try:
        os.close(read)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        answer = task()
    except BaseException as error:
        answer = f"error {type(error).__name__}: {error}"
    finally:
        os.write(write, answer.encode()[:4_000])
        os._exit(0)


def _read(pipe: int) -> str:
    """The end of the pipe is not awaited: processes that a test left behind may hold it open."""
    answer = os.read(pipe, 4_000)
    os.close(pipe)
    return answer.decode()
