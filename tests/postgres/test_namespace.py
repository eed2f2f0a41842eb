"""Detent beside other tables in one database: its schema, several installations, roles, and names that need quotes."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from detent.cli import run
from detent.cli.diagnose.database import Finding
from detent.cli.diagnose.doctor_postgres import findings
from detent.client.connect import store_from
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import DetentError
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.pruning import add_partitions
from detent.ports.listing import Filter
from detent.proof.verify.verify import verify
from support.acts import claim_one, submit
from support.servers.bouncer import ABSENT, bouncing, installed
from support.servers.databases import house, newest
from support.servers.postgres import VOLATILE, running

pytestmark = pytest.mark.anyio
THEIRS = (
    "CREATE TABLE jobs (id serial PRIMARY KEY, status text NOT NULL DEFAULT 'open' CHECK (status <> ''))",
    "CREATE TABLE events (id bigint, job_id integer REFERENCES jobs, at timestamptz)",
    "CREATE TABLE tokens (value text UNIQUE)",
    "CREATE TABLE keys (a int, b int, PRIMARY KEY (a, b))",
    "CREATE INDEX jobs_ready ON jobs (status)",
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER jobs_fixed BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION refuse()",
    "INSERT INTO jobs (status) VALUES ('open'), ('closed')",
    "INSERT INTO events VALUES (1, 1, '2026-01-01'), (2, 2, NULL)",
    "INSERT INTO tokens VALUES ('abc')",
    "INSERT INTO keys VALUES (1, 2)",
)
"""An application's tables, with names that Detent uses too."""
THEIR_CONTENTS = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
    " WHERE table_schema = 'public' ORDER BY 1, 2",
    "SELECT relname, relkind::text, relowner::text, relacl::text FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
    " ORDER BY 1",
    "SELECT tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid"
    " WHERE relnamespace = 'public'::regnamespace AND NOT tgisinternal ORDER BY 1",
    "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1",
    *(f"SELECT * FROM public.{table} ORDER BY 1" for table in ("jobs", "events", "tokens", "keys")),
)
_numbers = count(1)


@pytest.fixture
def url() -> str:
    """A database without anything of Detent in it."""
    home = house(newest())
    return home.url(home.blank())


def sql(url: str, *statements: str) -> list[tuple[object, ...]]:
    """As an application would. The tests' role is called detent, so the default path would begin with our schema."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=public") as connection:
        cursors = [connection.execute(statement) for statement in statements]  # type: ignore[arg-type]
        return [row for cursor in cursors if cursor.description for row in cursor]


def schemas(url: str) -> set[str]:
    """Those that have tables of Detent."""
    return {str(name) for (name,) in sql(url, "SELECT schemaname FROM pg_tables WHERE tablename = 'periodic_runs'")}


async def command(*words: str) -> int:
    return await asyncio.to_thread(run, list(words))


async def one_job(url: str) -> Engine:
    """Run a job from submit to end, and verify its log; returns the open engine."""
    engine = Engine(store_from(url))
    await engine.open()
    job = await submit(engine)
    held = await claim_one(engine)
    await engine.settle(held.id, held.token, Succeeded())
    assert (await engine.jobs.get(job.id)).status == "succeeded"
    assert (await verify(engine.store)).ok
    return engine


async def test_beside_tables_of_the_same_names(url: str) -> None:
    sql(url, *THEIRS)
    before = sql(url, *THEIR_CONTENTS)
    assert len(before) > 30
    assert await command("jobs", "list", "--url", url) == 1
    assert await command("migrate", "--url", url) == 0
    await (await one_job(url)).close()
    assert schemas(url) == {"detent"}
    assert sql(url, *THEIR_CONTENTS) == before
    sql(url, "DROP SCHEMA detent CASCADE")
    assert sql(url, *THEIR_CONTENTS) == before, "and all of it goes again with its schema"


async def test_two_installations_in_one_database(url: str) -> None:
    engines = []
    for name in ("a", "b"):
        assert await command("migrate", "--url", f"{url}?schema={name}") == 0
        engines.append(await one_job(f"{url}?schema={name}"))
    a, b = engines
    mine = CONTRACTS["standard"].with_options(name="mine.detent.contract")
    declaring = Engine(store_from(f"{url}?schema=a"), {"mine.detent.contract": mine})
    await declaring.open()
    job = await submit(declaring, "mine.detent.contract")
    assert {job.id} < {row.id for row in await a.jobs.list(Filter())}
    assert len(await b.jobs.list(Filter())) == 1
    assert "mine.detent.contract" not in {str(name) for (name,) in sql(url, "SELECT name FROM b.contracts")}
    for engine in (declaring, a, b):
        await engine.close()
    assert schemas(url) == {"a", "b"}


async def test_installations_do_not_wake_each_other(url: str) -> None:
    for name in ("a", "b"):
        assert await command("migrate", "--url", f"{url}?schema={name}") == 0
    submitting = {name: Engine(store_from(f"{url}?schema={name}")) for name in ("a", "b")}
    waiting = Engine(store_from(f"{url}?schema=a"))
    for engine in (*submitting.values(), waiting):
        await engine.open()
    watch = waiting.store.watch()
    while await watch.changed(0.5):
        """The listener reports a change when it is connected."""
    await submit(submitting["b"])
    assert not await watch.changed(0.5)
    await submit(submitting["a"])
    assert await watch.changed(10)
    for engine in (*submitting.values(), waiting):
        await engine.close()


async def test_the_environment_names_the_schema_and_the_url_wins(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETENT_SCHEMA", "from_environment")
    assert await command("migrate", "--url", url) == 0
    await (await one_job(url)).close()
    assert schemas(url) == {"from_environment"}
    assert await command("migrate", "--url", f"{url}?schema=from_url") == 0
    assert schemas(url) == {"from_environment", "from_url"}


@pytest.mark.parametrize("name", ["My jobs", "select", "détent-2", "x.detent.y", "9", "a" * 63])
async def test_names_that_need_quotes(url: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{url}?schema={quote(name)}"
    assert await command("migrate", "--url", target) == 0
    engine = await one_job(target)
    other = Engine(store_from(target))
    await other.open()
    watch = engine.store.watch()
    while await watch.changed(0.5):
        """The listener reports a change when it is connected."""
    await submit(other)
    assert await watch.changed(10)
    await engine.close()
    await other.close()
    assert schemas(url) == {name}
    capsys.readouterr()
    await command("doctor", "--url", target, "--json")
    checks = {row["check"]: row["ok"] for row in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["schema"] and checks["indexes"]


@pytest.mark.parametrize(
    "name", ["", "pg_mine", "a" * 64, "é" * 32, 'a"b', "a;b", "a :b", "a{clock}", "a'b", " a", "a\n"]
)
async def test_other_names_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DetentError) as caught:
        store_from(f"postgresql://detent@127.0.0.1:1/jobs?schema={quote(name)}")
    assert caught.value.code == "URL_INVALID" and repr(name) in caught.value.message
    if name:
        monkeypatch.setenv("DETENT_SCHEMA", name)
        with pytest.raises(DetentError, match="invalid schema"):
            store_from("postgresql://detent@127.0.0.1:1/jobs")


async def test_behind_a_bouncer() -> None:
    if not installed():
        pytest.skip(ABSENT)
    with running(settings=VOLATILE) as server, bouncing(server, "postgres") as bouncer:
        sql(server.url(), *THEIRS)
        before = sql(server.url(), *THEIR_CONTENTS)
        for name in ("a", "b%20c"):
            assert await command("migrate", "--url", f"{bouncer}&schema={name}") == 0
            await (await one_job(f"{bouncer}&schema={name}")).close()
        assert schemas(server.url()) == {"a", "b c"}
        assert sql(server.url(), *THEIR_CONTENTS) == before


@contextmanager
def role(url: str) -> Iterator[tuple[str, str]]:
    """(name, URL) of a new role without any rights on the database but to connect."""
    name = f"role_{next(_numbers)}"
    sql(url, f"CREATE ROLE {name} LOGIN", f"REVOKE ALL ON DATABASE {url.rpartition('/')[2]} FROM PUBLIC")
    sql(url, f"GRANT CONNECT ON DATABASE {url.rpartition('/')[2]} TO {name}")
    try:
        yield name, f"postgresql://{name}@{url.rpartition('@')[2]}"
    finally:
        sql(url, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


WORKER_RIGHTS = (
    "GRANT USAGE ON SCHEMA detent TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA detent TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA detent TO {role}",
)


@pytest.mark.parametrize(
    "right", ["ALTER SCHEMA detent OWNER TO {role}", "GRANT USAGE, CREATE ON SCHEMA detent TO {role}"]
)
async def test_a_role_with_rights_on_the_schema_only_can_migrate(
    url: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with role(url) as (owner, owner_url), role(url) as (worker, worker_url):
        assert await command("migrate", "--url", owner_url) == 1, "it may not create a schema"
        assert "permission denied" in capsys.readouterr().err
        sql(url, "CREATE SCHEMA detent", right.format(role=owner))
        assert await command("migrate", "--url", owner_url) == 0
        await (await one_job(owner_url)).close()
        sql(owner_url, *(statement.format(role=worker) for statement in WORKER_RIGHTS[right.startswith("GRANT") :]))
        sql(url, WORKER_RIGHTS[0].format(role=worker))
        await (await one_job(worker_url)).close()


async def test_the_documented_roles_have_enough_rights(url: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate" / "postgres.md").read_text("utf-8")
    (block,) = re.findall(r"```sql\n(CREATE ROLE.*?)```", page, re.DOTALL)
    with role(url) as (owner, owner_url), role(url) as (worker, worker_url):
        statements = re.sub(r"CREATE ROLE .*;\n", "", block)
        sql(url, statements.replace("jobs_owner", owner).replace("jobs_worker", worker))
        assert await command("migrate", "--url", owner_url) == 0
        engine = await one_job(worker_url)
        assert await engine.store.read(lambda tx: tx.pruning.event_partitions()) is not None, "it may drop partitions"
        sql(owner_url, "UPDATE detent.event_partitions SET days = 1", "DROP TABLE " + ", ".join(partitions(owner_url)))
        assert await add_partitions(engine) == 3
        await engine.close()
        assert (await partitions_check(worker_url)).ok
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sql(worker_url, "ALTER TABLE detent.jobs ADD COLUMN mine text")


async def partitions_check(url: str) -> Finding:
    (finding,) = [finding for finding in await asyncio.to_thread(findings, url) if finding.check == "partitions"]
    return finding


def partitions(url: str) -> list[str]:
    return [f"detent.{row[0]}" for row in sql(url, "SELECT name FROM detent.event_partition_list")]


async def test_a_role_that_may_not_add_partitions_works_without(url: str) -> None:
    """Its events go to the default partition, pruning deletes them by row, and the doctor says what to grant."""
    assert await command("migrate", "--url", url) == 0
    with role(url) as (worker, worker_url):
        sql(url, *(statement.format(role=worker) for statement in WORKER_RIGHTS))
        before = partitions(url)
        sql(url, "DROP TABLE " + ", ".join(before))
        engine = await one_job(worker_url)
        assert await add_partitions(engine) == 0
        assert sql(url, "SELECT DISTINCT tableoid::regclass::text FROM detent.events") == [("detent.events_default",)]
        await engine.prune(0.0)
        await engine.close()
        check = await partitions_check(worker_url)
        assert not check.ok and f"role {worker} may not" in check.message and "GRANT EXECUTE" in check.advice
        sql(url, check.advice.partition("as the owner: ")[2].partition(";")[0])
        assert "may not" not in (await partitions_check(worker_url)).message


@pytest.mark.parametrize("name", ["detent", "My jobs"])
async def test_statements_run_by_hand_make_a_whole_installation(
    url: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The role of the workers may neither create nor alter anything, so nothing may be left to the first start."""
    target = f"{url}?schema={quote(name)}"
    assert await command("migrate", "--sql", "--url", target) == 0
    text = capsys.readouterr().out
    assert schemas(url) == set()
    sql(url, text)
    with role(url) as (worker, worker_url):
        quoted = f'"{name}"'
        sql(url, *(right.replace("SCHEMA detent", f"SCHEMA {quoted}").format(role=worker) for right in WORKER_RIGHTS))
        await (await one_job(f"{worker_url}?schema={quote(name)}")).close()
    assert await command("migrate", "--url", target, "--json") == 0
    assert json.loads(capsys.readouterr().out)["migrated"] is False
