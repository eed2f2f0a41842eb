"""`detent queues`, `contract`, `stats` and `doctor`."""

import asyncio
import os
from pathlib import Path

import apsw
import pytest

from detent.cli.operate.contracts import contract_diagram
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Edge, Move, Phase
from detent.core.contract.standard import STANDARD
from detent.core.times import SECOND
from detent.engine import Engine, Submission
from detent.ports.listing import WorkerRow
from detent.stores.sqlite.store import SqliteStore
from support.cli.console import Cli


def test_queues_pause_and_resume(cli: Cli) -> None:
    assert cli("queues", "list").out.startswith("No queues yet.")
    job = cli("enqueue", "charge", "--queue", "billing").id
    cli("enqueue", "charge", "--queue", "billing", "--at", "2099-01-01T00:00:00Z")
    cli("enqueue", "charge", "--queue", "billing", "--contract", "p3c", "--at", "2099-01-01T00:00:00Z")
    cli("enqueue", "ship", "--queue", "mail")
    assert cli("queues", "pause", "billing", "--reason", "audit", "--json").json["paused"] is True
    cli("queues", "pause", "--type", "ship")
    cli("queues", "pause", "--tenant", "default")
    shown = cli("queues", "list", "--json").json
    billing, mail = shown["items"]
    assert (billing["queue"], billing["due"], billing["later"], billing["held"]) == ("billing", 1, 2, 0)
    assert billing["paused"]["actor"] == "ann" and billing["paused"]["reason"] == "audit" and mail["paused"] is None
    assert [pause["kind"] for pause in shown["pauses"]] == ["job_type", "queue", "tenant"]
    text = cli("queues", "list").out
    assert "by ann" in text and "(audit)" in text and "paused: job type ship" in text and "paused: tenant" in text
    assert cli("jobs", "why", job).out.startswith("PAUSED: the queue 'billing' was paused by ann at")
    assert cli("queues", "resume", "billing", "--json").json["was_paused"] is True
    assert "was not paused" in cli("queues", "resume", "billing", code=1).out
    for target in ((), ("a", "--type", "b"), ("--type", "a", "--tenant", "b")):
        assert cli("queues", "pause", *target, code=2).err.startswith("USAGE")


def test_stats(cli: Cli) -> None:
    assert cli("stats").out.startswith("No jobs yet.")
    empty = cli("stats", "--json").json
    assert empty["statuses"] == {} and empty["phases"] == {"claimable": 0, "leased": 0, "blocked": 0, "final": 0}
    cli("enqueue", "charge")
    cli("enqueue", "charge", "--contract", "gate-b2")
    cli("jobs", "cancel", cli("enqueue", "charge").id)
    shown = cli("stats", "--json").json
    assert shown["statuses"] == {"standard": {"queued": 1, "cancelled": 1}, "gate-b2": {"queued": 1}}
    assert shown["phases"] == {"claimable": 2, "leased": 0, "blocked": 0, "final": 1}
    assert (shown["jobs"], shown["due"], shown["dead_letters"]) == (3, 2, {})
    text = cli("stats").out
    assert "gate-b2" in text and "oldest for" in text and "0 live" in text


@pytest.mark.parametrize("name", list(CONTRACTS))
def test_contract_show_is_the_table(cli: Cli, name: str) -> None:
    shown = cli("contract", "show", name, "--json").json
    assert list(shown) == ["name", "description", "statuses", "edges", "codes", "retry"] and shown["description"]
    contract = CONTRACTS[name]
    assert shown["statuses"] == {status: str(phase) for status, phase in contract.statuses.items()}
    assert [tuple(edge.values()) for edge in shown["edges"]] == [
        (edge.move, edge.source, edge.event, edge.target) for edge in contract.edges
    ]
    assert shown["codes"] == dict(contract.codes) and shown["retry"]["max_retries"] == contract.retry.max_retries
    text = cli("contract", "show", name).out
    assert all(status in text for status in contract.statuses)
    assert not Path("shop.db").exists(), "contract show creates no database"


@pytest.mark.parametrize("name", list(CONTRACTS))
def test_contract_draw_has_every_edge(cli: Cli, name: str) -> None:
    contract = CONTRACTS[name]
    lines = cli("contract", "draw", name).out.splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = [line for line in lines if "-->" in line and not line.endswith("[*]")]
    assert len(arrows) == len(contract.edges)
    for edge in contract.edges:
        assert any(
            line.strip().startswith(f"{edge.source or '[*]'} --> {edge.target} : ") and edge.event in line
            for line in arrows
        )
    assert cli("contract", "draw", name, "--json").json["mermaid"] == "\n".join(lines)


def test_odd_statuses_are_drawn_under_an_alias() -> None:
    odd = Contract(
        "odd",
        {"to do": Phase.CLAIMABLE, "end": Phase.LEASED, 'al"l': Phase.FINAL},
        (
            Edge(Move.SUBMIT, None, "a:b", "to do"),
            Edge(Move.CLAIM, "to do", "taken", "end"),
            Edge(Move.SUCCEED, "end", "won", 'al"l'),
            Edge(Move.FAIL, "end", "lost", 'al"l'),
            Edge(Move.RETRY, "end", "again", "to do"),
            Edge(Move.EXPIRE, "end", "gone", "to do"),
            Edge(Move.RELEASE, "end", "back", "to do"),
        ),
    )
    picture = contract_diagram(odd)
    assert 'state "to do" as status_0' in picture and "status_0 --> status_1 : CLAIM taken" in picture
    assert "SUBMIT a#58;b" in picture and 'state "al\'l" as status_2' in picture


LAMP = """name = "lamp"

[statuses]
off = "claimable"
on = "leased"
done = "final"

[stop]
move = "RELEASE"

[[edges]]
move = "SUBMIT"
event = "made"
target = "off"

[[edges]]
move = "CLAIM"
source = "off"
event = "lit"
target = "on"

[[edges]]
move = "SUCCEED"
source = "on"
event = "burnt"
target = "done"

[[edges]]
move = "FAIL"
source = "on"
event = "broke"
target = "done"

[[edges]]
move = "RETRY"
source = "on"
event = "flickered"
target = "off"

[[edges]]
move = "RELEASE"
source = "on"
event = "put_out"
target = "off"

[[edges]]
move = "EXPIRE"
source = "on"
event = "lost"
target = "off"
"""


def test_contract_check(cli: Cli) -> None:
    Path("lamp.toml").write_text(LAMP)
    assert cli("contract", "check", "lamp.toml").out == "lamp is valid: 3 statuses, 7 edges\n"
    view = {"ok": True, "name": "lamp", "statuses": 3, "edges": 7}
    assert cli("contract", "check", "lamp.toml", "--json").json == view
    assert "off --> on : CLAIM lit" in cli("contract", "draw", "lamp.toml").out
    Path("bad.toml").write_text(LAMP.replace('target = "on"', 'target = "done"'))
    assert cli("contract", "check", "bad.toml", code=1).err.startswith("CONTRACT_INVALID: ")
    assert cli("contract", "check", "bad.toml", "--json", code=1).json["ok"] is False
    assert cli("contract", "check", "none.toml", code=2).err.startswith("USAGE")
    assert cli("contract", "show", "nope", code=1).err.startswith("CONTRACT_UNKNOWN")


def test_contracts_stored_in_the_database_are_used_and_not_changed(cli: Cli) -> None:
    """An application's own contract, and its changes to a built-in one, apply to the command line too."""
    changed = STANDARD.with_options(lease_seconds=2.0, retry={"base_ms": 7})
    own = STANDARD.with_options(name="own", codes={"illegal_transition": "OWN_INVALID"})
    engine = Engine(SqliteStore("shop.db", inline=True), {"standard": changed, "own": own})
    asyncio.run(_submit(engine, "own"))
    assert len(cli("jobs", "list", "--json").json["items"]) == 1
    job = cli("enqueue", "charge", "--contract", "own").id
    cli("jobs", "cancel", job)
    assert cli("jobs", "cancel", job, code=1).err.startswith("OWN_INVALID")
    assert "custom" in cli("contract", "list").out
    assert cli("contract", "show", "own", "--json").json["name"] == "own"
    assert cli("contract", "show", "standard", "--json").json["retry"]["base_ms"] == 7
    rows = dict(apsw.Connection("shop.db").execute("SELECT name, definition FROM detent_contracts").fetchall())
    assert '"lease_seconds": 2.0' in rows["standard"]
    assert "changed from the built-in version: standard" in cli("doctor", code=1).out


async def _submit(engine: Engine, contract: str) -> None:
    await engine.open()
    await engine.jobs.submit(Submission("charge", contract=contract))
    await engine.close()


def test_doctor_finds_nothing_wrong(cli: Cli) -> None:
    cli("migrate")
    report = cli("doctor", "--json").json
    assert report["ok"] is True and [check["check"] for check in report["checks"]] == [
        *("file", "schema", "durability", "contracts", "workers", "types", "leases", "clock"),
        *("version", "snapshots", "open files", "indexes", "vacuum"),
        *("settings", "alerts", "evaluation", "sinks", "schedules", "losses", "retention"),
    ]
    assert "fsync on every commit" in cli("doctor").out


def test_doctor_creates_no_file_and_says_what_to_do(cli: Cli) -> None:
    report = cli("doctor", "--json", code=1).json
    assert "detent migrate" in report["checks"][0]["do"] and not Path("shop.db").exists()
    assert "a does not exist; create it" in cli("doctor", "--url", "sqlite:///a/b.db", code=1).out
    assert "cannot be read" in cli("doctor", "--url", "sqlite:///shop.py", code=1).out
    Path("folder.db").mkdir()
    assert "folder.db" in cli("doctor", "--url", "sqlite:///folder.db", code=1).out


def test_doctor_sees_files_that_cannot_be_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("migrate")
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("shop.db"))
    assert "is not writable" in cli("doctor", code=1).out


def test_doctor_finds_unserved_types_and_expired_leases(cli: Cli) -> None:
    cli("enqueue", "charge", "--queue", "billing")
    asyncio.run(_claim_for_a_moment())
    cli("enqueue", "ship")
    checks = {check["check"]: check for check in cli("doctor", "--json", code=1).json["checks"]}
    assert checks["workers"]["ok"] is False and "2 unfinished jobs" in checks["workers"]["says"]
    assert "1 job of type ship due in queue default" in checks["types"]["says"]
    assert "handles ship and serves queue default" in checks["types"]["do"]
    assert checks["leases"]["says"].startswith("1 expired and not reclaimed")
    text = cli("doctor", code=1).out
    assert "FAIL" in text and "-> start a worker that handles ship" in text


async def _claim_for_a_moment() -> None:
    engine = Engine(SqliteStore("shop.db", inline=True))
    await engine.open()
    await engine.claim(engine.claim_request("w1", 1, 0.000_001))
    await engine.close()


def test_doctor_compares_clocks(cli: Cli) -> None:
    cli("migrate")
    asyncio.run(_worker_from_the_future())
    checks = {check["check"]: check for check in cli("doctor", "--json", code=1).json["checks"]}
    assert checks["clock"]["ok"] is False and "ahead of this machine's clock" in checks["clock"]["says"]
    shown = cli("workers", "--json").json["items"][0]
    assert shown["live"] is True and shown["queues"] == ["a"] and shown["lease_seconds"] == 30.0


async def _worker_from_the_future() -> None:
    store = SqliteStore("shop.db", inline=True)
    await store.open({}, {})
    then = store.now() + 3_600 * SECOND
    row = WorkerRow("w9", "h", 1, "0", '["a"]', '["charge"]', 4, 0, "working", then, then, 30 * SECOND)
    await store.write(lambda tx: tx.workers.put_worker(row))
    await store.close()
