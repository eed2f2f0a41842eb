"""Options of contracts from Python, from the settings file and from the environment."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent import FORMAL, GATE_B2, P3C, Contract, Detent, DetentError
from detent.client.connect import CONTRACT_VARIABLES, store_from
from detent.core.job import Failure
from detent.core.outcome import Failed
from detent.engine import Engine, Submission
from support.servers.databases import house, newest

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).resolve().parents[2] / "docs" / "understand" / "contracts.md"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    database = house(newest()).database()
    yield database.url
    database.release()


async def drawn_delay(engine: Engine) -> float:
    """The delay of the first retry of a gate-b2 job in milliseconds, without jitter."""
    queue = engine.ids.token()
    job = (await engine.jobs.submit(Submission("charge", contract="gate-b2", queue=queue))).job
    (claimed,) = await engine.claim(engine.claim_request("w", 1, 30.0, queues=frozenset({queue})))
    job = await engine.settle(job.id, claimed.token, Failed(Failure("E", "no", retryable=True)))
    return ((job.next_retry_at or 0) - job.updated_at) / 1_000


async def test_python_file_and_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = [GATE_B2.with_options(retry={"base_ms": 700}), P3C.with_options(loss={"max_interruptions": 5})]

    def app(contracts: Any = ()) -> Detent:
        return Detent(url, contracts=contracts, jitter=lambda *_: 0)

    async with app(declared) as application:
        assert await drawn_delay(application.engine) == 700
        assert application.engine.contract("p3c").loss.max_interruptions == 5
    Path("detent.toml").write_text("[contracts.gate-b2.retry]\nbase_ms = 50\n[contracts.p3c]\nlease_seconds = 7\n")
    async with app(declared) as application:
        assert await drawn_delay(application.engine) == 50
        assert application.engine.contract("p3c").loss.max_interruptions == 5, "the file changes what it names"
        assert application.engine.contract("p3c").lease_seconds == 7
    monkeypatch.setenv("DETENT_GATE_B2_BASE_MS", "90")
    monkeypatch.setenv("DETENT_GATE_B2_MAX_BACKOFF_MS", "80")
    monkeypatch.setenv("DETENT_P3C_MAX_INTERRUPTIONS", "0")
    async with app() as application:
        assert await drawn_delay(application.engine) == 80
        assert application.engine.contract("p3c").loss.max_interruptions == 0
    without_settings = Engine(store_from(url), jitter=lambda *_: 0)
    await without_settings.open()
    try:
        assert await drawn_delay(without_settings) == 80, "the database keeps the numbers for other processes"
    finally:
        await without_settings.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[contracts.gate-b2.retry]\nmax_retries = 4\n", "retry.max_retries cannot be changed"),
        ("[contracts.gate-b2.retry]\nbase_ms = -1\n", "retry.base_ms must be a whole number of at least 0"),
        ("[contracts.gate-b2.retry]\nbase = 1\n", "base"),
        ("[contracts.gate-b2]\nretry = 5\n", "retry must be a table"),
        ('[contracts.gate-b2]\nname = "mine"\n', "name cannot be changed"),
        ("[contracts.gate-c.retry]\nbase_ms = 1\n", "unknown contract 'gate-c'"),
        ("[contracts]\ngate-b2 = 5\n", "contracts.gate-b2 must be a"),
    ],
)
async def test_bad_options_are_refused(url: str, text: str, problem: str) -> None:
    Path("detent.toml").write_text(text)
    with pytest.raises(DetentError) as refused:
        await Detent(url).ready()
    assert problem in refused.value.message
    assert not Path("jobs.db").exists()


@pytest.mark.parametrize("variable", CONTRACT_VARIABLES)
def test_a_variable_must_be_a_number(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "ten")
    with pytest.raises(DetentError, match=re.escape(f"${variable} must be a whole number, got 'ten'")):
        Detent("sqlite:///:memory:").make_engine()


def test_a_table_changes_only_what_it_names() -> None:
    changed = GATE_B2.with_options(retry={"cap_ms": 9}, keys={"max_length": 7})
    assert changed.retry.as_dict() == {**GATE_B2.retry.as_dict(), "cap_ms": 9}
    assert (changed.keys.max_length, changed.keys.scope) == (7, GATE_B2.keys.scope)
    assert (changed.view, changed.envelope, changed.edges) == (GATE_B2.view, GATE_B2.envelope, GATE_B2.edges)
    table = FORMAL.with_options(retry={"kind": "table", "delays_ms": [60_000, 300_000]}).retry.as_dict()
    assert (table["kind"], table["delays_ms"], table["max_retries"]) == ("table", [60_000, 300_000], 2)


def test_the_page_lists_every_variable_and_its_example_is_valid() -> None:
    page = PAGE.read_text("utf-8").partition("## Options of a contract")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(DETENT_\w+)`", page, re.MULTILINE)) == set(CONTRACT_VARIABLES)
    scope: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], scope)  # noqa: S102
    contracts: dict[str, Contract] = scope["app"].contracts
    tables = tomllib.loads(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])["contracts"]
    assert contracts["gate-b2"] == GATE_B2.with_options(**tables["gate-b2"])
    assert contracts["p3c"] == P3C.with_options(**tables["p3c"], lease_seconds=60)
