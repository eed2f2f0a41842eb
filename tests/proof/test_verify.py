"""`verify` reports nothing on a healthy database, and reports every planted corruption under its rule."""

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
from detent.ports.verification import JobRange
from detent.proof.verify import rules
from detent.proof.verify import verify as verify_module
from detent.proof.verify.rows import JobCase, differences
from detent.proof.verify.rules import RULES, WARNINGS, Report
from detent.proof.verify.verify import EVERYTHING, Scope, verify
from detent.stores.sqlite.store import SqliteStore
from detent.system.run_now import run_now
from support.proof.corrupted_places import PLACES
from support.proof.corruptions import CORRUPTIONS
from support.proof.healthy import ManualClock, build
from support.proof.planting import Corruption, corrupt, plant, row


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
def agrees_and_differences_are_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every test here, `agrees` is True if and only if `differences` yields nothing."""
    agrees = verify_module.agrees

    def checked(*case: Any) -> bool:
        result = agrees(*case)
        assert result == (not list(differences(JobCase(*case))))
        return result

    monkeypatch.setattr(verify_module, "agrees", checked)


def on_store(path: Path, act: Callable[[Store], Awaitable[Report]]) -> Report:
    async def run() -> Report:
        store = SqliteStore(str(path), inline=True, synchronous="OFF")
        await store.open({}, {})
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(run())


def verified(path: Path, scope: Scope = EVERYTHING, **options: Any) -> Report:
    return on_store(path, lambda store: verify(store, scope=scope, **options))


def test_a_healthy_database_is_clean(copy: Path) -> None:
    report = verified(copy)
    assert report.violations == []
    assert [finding.rule for finding in report.warnings] == ["final-reopened"]
    assert report.ok and report.jobs > 100 and report.events > 400


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c.name)
def test_every_corruption_is_reported(copy: Path, corruption: Corruption) -> None:
    victim = plant(str(copy), corruption)
    report = verified(copy)
    findings = report.warnings if corruption.rule in WARNINGS else report.violations
    findings = [finding for finding in findings if finding.rule == corruption.rule]
    assert findings, f"reported only {report.violations + report.warnings}"
    assert report.ok == (not report.violations) and report.ok <= (corruption.rule in WARNINGS)
    if victim is not None:
        assert victim in {finding.job_id for finding in findings}
    for finding in report.violations:
        assert len(finding.detail.split()) >= 3, finding


def test_every_rule_has_a_corruption() -> None:
    assert len(CORRUPTIONS) >= 30
    assert {corruption.rule for corruption in (*CORRUPTIONS, *PLACES)} == set(RULES)
    assert len({corruption.name for corruption in CORRUPTIONS}) == len(CORRUPTIONS)
    for name, sentence in RULES.items():
        assert name == name.lower() and " " not in name and sentence.endswith(".")


@pytest.mark.parametrize("chunk", [1, 2, 7, 50])
def test_the_chunk_size_does_not_change_the_findings(copy: Path, chunk: int) -> None:
    names = (
        "last job row lost",
        "attempt skipped",
        "key of a job without it",
        "discard never confirmed",
        "requeued from nothing",
    )
    chosen = [corruption for corruption in CORRUPTIONS if corruption.name in names]
    for corruption in chosen:
        plant(str(copy), corruption)
    whole = verified(copy)
    assert {corruption.rule for corruption in chosen} <= {finding.rule for finding in whole.violations}
    parts = verified(copy, chunk=chunk)
    assert sorted(parts.violations) == sorted(whole.violations)
    assert (parts.jobs, parts.events) == (whole.jobs, whole.events)


def test_a_chunk_is_cut_if_it_has_too_many_events(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = verified(copy)
    monkeypatch.setattr(verify_module, "EVENTS_AT_ONCE", 5)
    progress: list[int] = []
    parts = verified(copy, progress=lambda done, total: progress.append(done))
    assert (parts.jobs, parts.events, parts.ok) == (whole.jobs, whole.events, True)
    assert len(progress) > whole.events / 12 and progress == sorted(progress)


def test_progress_is_called_after_every_chunk(copy: Path) -> None:
    calls: list[tuple[int, int]] = []
    report = verified(copy, chunk=50, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (50, report.jobs) and calls[-1] == (report.jobs, report.jobs)


@pytest.mark.parametrize("name", ["gate-b2", "men", "p3c", "streams", "formal", "standard"])
def test_one_contract(copy: Path, name: str) -> None:
    plant(
        str(copy),
        corrupt("x", "x", f"SELECT min(id) FROM detent_job_list WHERE contract = '{name}'", row("created_at = 1")),
    )
    assert [finding.rule for finding in verified(copy, Scope(contract=name)).violations] == ["created-differs"]
    others = {"gate-b2", "men", "p3c", "streams", "formal", "standard"} - {name}
    sizes = {other: verified(copy, Scope(contract=other)) for other in others}
    assert all(report.ok and report.jobs for report in sizes.values())
    assert sum(report.jobs for report in sizes.values()) < verified(copy).jobs


def test_one_job(copy: Path) -> None:
    for name in (
        "dead letter lost",
        "key lost",
        "leased without a worker",
        "note from the future",
        "one person discards",
    ):
        corruption = next(corruption for corruption in CORRUPTIONS if corruption.name == name)
        victim = plant(str(copy), corruption)
        report = verified(copy, Scope(job_id=victim))
        assert report.jobs == 1 and corruption.rule in {finding.rule for finding in report.violations}
        assert {finding.job_id for finding in report.violations} == {victim}
    with pytest.raises(NotFound):
        verified(copy, Scope(job_id="nobody"))


def test_a_lost_job_row_is_a_violation_and_not_an_unknown_id(copy: Path) -> None:
    victim = plant(str(copy), next(corruption for corruption in CORRUPTIONS if corruption.name == "job row lost"))
    report = verified(copy, Scope(job_id=victim))
    assert report.jobs == 0 and {finding.rule for finding in report.violations} == {"event-orphan"}


def test_only_what_changed_since(copy: Path) -> None:
    newest = "SELECT id FROM detent_job_list ORDER BY updated_at DESC, id LIMIT 1"
    victim = plant(str(copy), corrupt("x", "x", newest, row("created_at = 1")))

    async def update_times(store: Store) -> list[int]:
        return [
            row.updated_at
            for row in await store.read(lambda tx: tx.verification.job_rows(JobRange(EVERYTHING), 10_000))
        ]

    times = sorted(on_store(copy, update_times))  # type: ignore[arg-type]
    late = verified(copy, Scope(since=times[-1]))
    assert [finding.job_id for finding in late.violations] == [victim] and late.jobs < 5
    half = verified(copy, Scope(since=times[len(times) // 2]), chunk=3)
    assert half.jobs == sum(time >= times[len(times) // 2] for time in times) and len(half.violations) == 1
    assert verified(copy, Scope(since=times[-1] + 1)).as_dict() == {
        "ok": True, "jobs": 0, "events": 0, "violations": [], "warnings": [],
    }  # fmt: skip


def test_findings_beyond_the_maximum_are_counted(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(str(copy), corrupt("x", "x", None, "UPDATE detent_job_list SET created_at = 1"))
    monkeypatch.setattr(rules, "KEPT_AT_MOST", 20)
    report = verified(copy)
    assert len(report.violations) == 20 and report.as_dict()["left_out"] == report.jobs - 20


def test_a_database_in_use_has_no_violations(copy: Path) -> None:
    """Jobs are submitted, claimed and settled between two chunks; each chunk sees a consistent snapshot."""
    clock = ManualClock()
    engine = Engine(SqliteStore(str(copy), clock=clock, inline=True, synchronous="OFF"))
    run_now(engine.open())
    clock.advance(10**6)
    failure = Failed(Failure("BROKEN", "never works", retryable=False))

    def work(done: int, total: int) -> None:
        clock.advance(1)
        run_now(engine.jobs.submit(Submission("new", contract="p3c", task_id="T-1")))
        for number, claimed in enumerate(run_now(engine.claim(engine.claim_request("w2", 7, 30.0)))):
            run_now(engine.settle(claimed.id, claimed.token, failure if number % 2 else Succeeded()))

    report = verified(copy, chunk=5, progress=work)
    assert report.ok, report.violations
    run_now(engine.close())
