"""`verify` on Postgres: a healthy database is clean, and jobs that its tables no longer find are reported."""

import asyncio

import pytest

from detent.proof.verify.rules import Report
from detent.proof.verify.verify import Scope, verify
from detent.stores.postgres.store import PostgresStore
from support.proof.corrupted_places import PLACES, plant_on_postgres
from support.proof.healthy import ManualClock, build_on
from support.proof.planting import Corruption
from support.servers.databases import house, migrated, newest


@pytest.fixture(scope="module")
def healthy() -> str:
    """The name of a database to copy."""

    async def build(url: str) -> None:
        await migrated(url)
        clock = ManualClock()
        await build_on(PostgresStore(url, clock=clock), clock)

    home = house(newest())
    name = home.blank()
    asyncio.run(build(home.url(name)))
    return name


@pytest.fixture
def url(healthy: str) -> str:
    home = house(newest())
    return home.url(home.blank(healthy))


def verified(url: str, **options: object) -> Report:
    async def run() -> Report:
        store = PostgresStore(url)
        await store.open({}, {})
        try:
            return await verify(store, **options)  # type: ignore[arg-type]
        finally:
            await store.close()

    return asyncio.run(run())


@pytest.mark.parametrize("chunk", [1_000, 7])
def test_a_healthy_database_is_clean(url: str, chunk: int) -> None:
    report = verified(url, chunk=chunk)
    assert report.violations == []
    assert report.jobs > 100 and report.events > 400


@pytest.mark.parametrize("corruption", PLACES, ids=lambda c: f"{c.rule}: {c.name}")
def test_every_corruption_is_reported(url: str, corruption: Corruption) -> None:
    victim = plant_on_postgres(url, corruption)
    findings = [finding for finding in verified(url).violations if finding.rule == corruption.rule]
    assert [finding.job_id for finding in findings] == [victim]
    assert len(findings[0].detail.split()) >= 5


def test_one_job(url: str) -> None:
    corruption = next(corruption for corruption in PLACES if corruption.rule == "claim-missing")
    victim = plant_on_postgres(url, corruption)
    report = verified(url, scope=Scope(job_id=victim))
    assert [(finding.job_id, finding.rule) for finding in report.violations] == [(victim, "claim-missing")]
