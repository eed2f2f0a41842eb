"""`verify` finds nothing on a healthy database, and names every planted corruption by its rule."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from detent.core.errors import NotFound
from detent.core.job import Failure
from detent.core.outcome import Failed, Succeeded
from detent.engine import Engine, Submission
from detent.ports.store import Store
from detent.proof.verify import rules
from detent.proof.verify import verify as verifying
from detent.proof.verify.rows import Case, differences
from detent.proof.verify.rules import RULES, WARNINGS, Report
from detent.proof.verify.verify import EVERYTHING, Scope, verify
from detent.stores.sqlite.session import run_now
from detent.stores.sqlite.store import SqliteStore

from .corruptions import CORRUPTIONS
from .healthy import Hands, build
from .planting import Corruption, broken, plant, row


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "jobs.db"
    asyncio.run(build(path))
    return path


@pytest.fixture
def copy(healthy: Path, tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    shutil.copyfile(healthy, path)
    return path


@pytest.fixture(autouse=True)
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick yes and the long list never disagree, whatever a test looks at."""
    quick = verifying.agrees

    def checked(*case: Any) -> bool:
        answer = quick(*case)
        assert answer == (not list(differences(Case(*case))))
        return answer

    monkeypatch.setattr(verifying, "agrees", checked)


def on_store(path: Path, act: Callable[[Store], Awaitable[Report]]) -> Report:
    async def run() -> Report:
        store = SqliteStore(str(path), inline=True, synchronous="OFF")
        await store.open({}, {})
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(run())


def judged(path: Path, scope: Scope = EVERYTHING, **options: Any) -> Report:
    return on_store(path, lambda store: verify(store, scope=scope, **options))


def test_a_healthy_database_is_clean(copy: Path) -> None:
    report = judged(copy)
    assert report.violations == []
    assert [finding.rule for finding in report.warnings] == ["final-reopened"]
    assert report.ok and report.jobs > 100 and report.events > 400


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c.name)
def test_every_corruption_is_found_and_named(copy: Path, corruption: Corruption) -> None:
    victim = plant(str(copy), corruption)
    report = judged(copy)
    kept = report.warnings if corruption.rule in WARNINGS else report.violations
    named = [finding for finding in kept if finding.rule == corruption.rule]
    assert named, f"found only {report.violations + report.warnings}"
    assert report.ok == (not report.violations) and report.ok <= (corruption.rule in WARNINGS)
    if victim is not None:
        assert victim in {finding.job_id for finding in named}
    for finding in report.violations:
        assert len(finding.detail.split()) >= 3, finding


def test_the_table_covers_every_rule() -> None:
    assert len(CORRUPTIONS) >= 30
    assert {corruption.rule for corruption in CORRUPTIONS} == set(RULES)
    assert len({corruption.name for corruption in CORRUPTIONS}) == len(CORRUPTIONS)
    for name, sentence in RULES.items():
        assert name == name.lower() and " " not in name and sentence.endswith(".")


@pytest.mark.parametrize("chunk", [1, 2, 7, 50])
def test_chunks_of_any_size_find_the_same(copy: Path, chunk: int) -> None:
    names = ("last job row lost", "run skipped", "key without a bearer", "discard never confirmed", "made from nothing")
    chosen = [corruption for corruption in CORRUPTIONS if corruption.name in names]
    for corruption in chosen:
        plant(str(copy), corruption)
    whole = judged(copy)
    assert {corruption.rule for corruption in chosen} <= {finding.rule for finding in whole.violations}
    parts = judged(copy, chunk=chunk)
    assert sorted(parts.violations) == sorted(whole.violations)
    assert (parts.jobs, parts.events) == (whole.jobs, whole.events)


def test_a_chunk_is_cut_where_its_events_would_be_too_many(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = judged(copy)
    monkeypatch.setattr(verifying, "EVENTS_AT_ONCE", 5)
    asked: list[int] = []
    parts = judged(copy, progress=lambda done, total: asked.append(done))
    assert (parts.jobs, parts.events, parts.ok) == (whole.jobs, whole.events, True)
    assert len(asked) > whole.events / 12 and asked == sorted(asked)


def test_progress_is_told_after_every_chunk(copy: Path) -> None:
    told: list[tuple[int, int]] = []
    report = judged(copy, chunk=50, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (50, report.jobs) and told[-1] == (report.jobs, report.jobs)


@pytest.mark.parametrize("name", ["gate-b2", "men", "p3c", "streams", "formal", "standard"])
def test_one_contract(copy: Path, name: str) -> None:
    plant(str(copy), broken("x", "x", f"SELECT min(id) FROM jobs WHERE contract = '{name}'", row("created_at = 1")))
    assert [finding.rule for finding in judged(copy, Scope(contract=name)).violations] == ["created-differs"]
    others = {"gate-b2", "men", "p3c", "streams", "formal", "standard"} - {name}
    sizes = {other: judged(copy, Scope(contract=other)) for other in others}
    assert all(report.ok and report.jobs for report in sizes.values())
    assert sum(report.jobs for report in sizes.values()) < judged(copy).jobs


def test_one_job(copy: Path) -> None:
    for wanted in ("dead letter lost", "key lost", "held by nobody", "note from the future", "one person discards"):
        corruption = next(one for one in CORRUPTIONS if one.name == wanted)
        victim = plant(str(copy), corruption)
        report = judged(copy, Scope(job_id=victim))
        assert report.jobs == 1 and corruption.rule in {finding.rule for finding in report.violations}
        assert {finding.job_id for finding in report.violations} == {victim}
    with pytest.raises(NotFound):
        judged(copy, Scope(job_id="nobody"))


def test_a_lost_job_is_not_merely_unknown(copy: Path) -> None:
    victim = plant(str(copy), next(one for one in CORRUPTIONS if one.name == "job row lost"))
    report = judged(copy, Scope(job_id=victim))
    assert report.jobs == 0 and {finding.rule for finding in report.violations} == {"event-orphan"}


def test_only_what_changed_since(copy: Path) -> None:
    newest = "SELECT id FROM jobs ORDER BY updated_at DESC, id LIMIT 1"
    victim = plant(str(copy), broken("x", "x", newest, row("created_at = 1")))

    async def moments(store: Store) -> list[int]:
        return [found[10] for found in await store.read(lambda tx: tx.query("verify_jobs", "true", limit=10_000))]

    times = sorted(on_store(copy, moments))  # type: ignore[arg-type]
    late = judged(copy, Scope(since=times[-1]))
    assert [finding.job_id for finding in late.violations] == [victim] and late.jobs < 5
    half = judged(copy, Scope(since=times[len(times) // 2]), chunk=3)
    assert half.jobs == sum(time >= times[len(times) // 2] for time in times) and len(half.violations) == 1
    assert judged(copy, Scope(since=times[-1] + 1)).as_dict() == {
        "ok": True, "jobs": 0, "events": 0, "violations": [], "warnings": [],
    }  # fmt: skip


def test_findings_beyond_the_bound_are_counted(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(str(copy), broken("x", "x", None, "UPDATE jobs SET created_at = 1"))
    monkeypatch.setattr(rules, "KEPT_AT_MOST", 20)
    report = judged(copy)
    assert len(report.violations) == 20 and report.as_dict()["left_out"] == report.jobs - 20


def test_a_database_at_work_is_clean_at_every_moment(copy: Path) -> None:
    """Between two chunks others submit, claim, settle and give up; no chunk sees half of any of it."""
    clock = Hands()
    engine = Engine(SqliteStore(str(copy), clock=clock, inline=True, synchronous="OFF"))
    run_now(engine.open())
    clock.advance(10**6)
    broke = Failed(Failure("BROKEN", "never works", retryable=False))

    def work(done: int, total: int) -> None:
        clock.advance(1)
        run_now(engine.submit(Submission("new", contract="p3c", task_id="T-1")))
        for number, held in enumerate(run_now(engine.claim(engine.claim_request("w2", 7, 30.0)))):
            run_now(engine.settle(held.id, held.token, broke if number % 2 else Succeeded()))

    report = judged(copy, chunk=5, progress=work)
    assert report.ok, report.violations
    run_now(engine.close())
