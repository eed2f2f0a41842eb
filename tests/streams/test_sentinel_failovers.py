"""Sentinel failovers under load, with orchestrators and workers in processes of their own."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from support.servers.sentinel import SentinelGroup, sentinel_group
from support.streams.process_harness import ProcessHarness, process_harness
from support.waiting import until_now

from .test_kills_under_load import FINALS, RESULTS, sql, submit

FAILOVERS = 10
BATCH = 100


@pytest.mark.drill
def test_sentinel_failovers_under_load(tmp_path: Path) -> None:
    """Three servers and three sentinels: the primary is killed or told to hand over, ten times, while tasks arrive."""
    with (
        sentinel_group(replicas=2, sentinels=3) as group,
        process_harness(tmp_path, "postgres", 2.0, redis_url=group.servers[0].url()) as harness,
    ):
        harness.redis_url = group.url
        for _ in range(2):
            harness.orchestrate()
            harness.work("--slots", "100")
        gaps = FailoverLoad(harness, group).run(FAILOVERS)
        finals = Counter(row[0] for row in sql(harness, FINALS))
        submitted = len(finals)
        assert set(finals.values()) == {1} and sql(harness, "SELECT count(*) FROM jobs") == [(submitted,)]
        assert sql(harness, RESULTS) == [(submitted,)]
        harness.check_integrity()
        print(f"{submitted} tasks, {FAILOVERS} failovers, seconds until all earlier tasks ended: {gaps}")


class FailoverLoad:
    """Submits a batch every half second while failovers happen; measures how long they delay the tasks."""

    def __init__(self, harness: ProcessHarness, group: SentinelGroup) -> None:
        self.harness, self.group = harness, group
        self.submitted = 0
        self.next_batch = time.monotonic()

    def run(self, failovers: int) -> list[float]:
        gaps = []
        self.wait(lambda: self.finished() > 0)
        for number in range(failovers):
            self.wait(self.group.replicas_in_step)
            former = self.group.primary()
            if number % 2:
                self.wait(self.hand_over)
            else:
                former.kill()
            began, done = time.monotonic(), self.finished()
            self.wait(lambda former=former: self.group.primary() is not former)
            if former.process is None:
                former.start()
            goal = self.submitted + 1  # all that was submitted so far, and one more
            self.wait(lambda goal=goal: self.finished() >= goal)
            gaps.append(round(time.monotonic() - began, 2))
            assert self.finished() > done
        until_now(lambda: self.finished() == self.submitted, 60)
        return sorted(gaps)

    def hand_over(self) -> bool:
        try:
            self.group.fail_over()
        except redis.ResponseError:  # the sentinel knows no replica in step yet
            return False
        return True

    def wait(self, condition: Callable[[], bool]) -> None:
        def submit_and_check() -> bool:
            self.harness.check_alive()
            if time.monotonic() >= self.next_batch:
                self.next_batch = time.monotonic() + 0.5
                submit(self.harness, BATCH, self.submitted)
                self.submitted += BATCH
            return condition()

        until_now(submit_and_check, 60)

    def finished(self) -> int:
        return int(sql(self.harness, "SELECT count(*) FROM jobs WHERE phase = 'final'")[0][0])
