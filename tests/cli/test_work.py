"""`detent worker`, `detent migrate`, and loading the application."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from detent.cli.loader import load_app
from detent.client.connect import shown_url
from detent.core.errors import DetentError
from support.cli.console import Cli


def test_worker_serves_the_named_queues(cli: Cli) -> None:
    mine = cli("enqueue", "charge", "--queue", "billing", "--payload", '{"order_id": 7}').id
    other = cli("enqueue", "charge", "--payload", '{"order_id": 8}').id
    result = cli("worker", "shop:app", "--queues", "billing, x", "--lease-seconds", "5", "--until-idle", code=0)
    assert "fsync on every commit" in result.out and "queues billing, x" in result.out
    assert cli("jobs", "show", mine, "--json").json["result"] == {"charged": 7}
    assert cli("jobs", "show", other, "--json").json["status"] == "queued"
    assert cli("worker", "shop.py", "--queues", ",", code=2).err.startswith("USAGE")
    assert cli("worker", "shop.py", "--slots", "0", code=2).err.startswith("USAGE")


def test_worker_url_wins_over_the_application(cli: Cli) -> None:
    job = cli("enqueue", "charge", "--payload", '{"order_id": 7}', "--url", "sqlite:///other.db").id
    assert cli("worker", "shop.py", "--url", "sqlite:///other.db", "--until-idle", "--json").json["job_types"] == [
        *("charge", "refund", "ship")
    ]
    assert cli("jobs", "show", job, "--url", "sqlite:///other.db", "--json").json["execution_no"] == 1


def test_worker_stops_on_sigterm(cli: Cli) -> None:
    cli("migrate")
    command = [sys.executable, "-m", "detent", "worker", "shop.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout and b"working on" in process.stdout.readline()
        while not cli("workers", "--json").json["items"]:
            assert process.poll() is None
        assert f"-{process.pid}-" in cli("workers").out and "working" in cli("workers").out
        assert cli("stats", "--json").json["workers"]["live"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert cli("workers").out.startswith("No workers.")


def test_worker_does_not_wait_for_a_file_that_is_no_database(cli: Cli) -> None:
    for url, code in (("sqlite:///shop.py", "STORE_UNAVAILABLE"), ("sqlite:///no/x.db", "DATABASE_PATH_INVALID")):
        assert cli("worker", "shop.py", "--url", url, code=1).err.startswith(f"{code}: cannot open")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere:app", "APP_NOT_FOUND: module 'nowhere' was not found"),
        ("nowhere.deeper", "APP_NOT_FOUND: module 'nowhere' was not found"),
        ("no/such.py", "APP_NOT_FOUND: file no/such.py does not exist"),
        ("shop.py:shop", "APP_NOT_FOUND: shop.py has no 'shop'; it has app"),
        ("shop:charge", "APP_INVALID: shop:charge is a JobDefinition, not a Detent"),
        ("empty.py", "APP_NOT_FOUND: empty.py has no 'app'; it has no Detent"),
        ("two.py", "APP_NOT_FOUND: two.py has no 'app'; it has one, other"),
        ("broken.py", "APP_FAILED: broken could not be loaded: ZeroDivisionError: division by zero (at "),
        ("needy.py", "APP_FAILED: needy could not be loaded: ModuleNotFoundError: No module named 'absent_thing'"),
        ("crooked.py", "APP_FAILED: crooked could not be loaded: SyntaxError"),
        (":app", "APP_INVALID: "),
        ("shop.py:", "APP_INVALID: "),
    ],
)
def test_an_app_that_cannot_be_loaded(cli: Cli, spec: str, message: str) -> None:
    Path("empty.py").write_text("")
    Path("two.py").write_text("from detent import Detent\none, other = Detent(), Detent()\n")
    Path("broken.py").write_text("x = 1\ny = 1 / 0\n")
    Path("needy.py").write_text("import absent_thing\n")
    Path("crooked.py").write_text("def (\n")
    error = cli("worker", spec, code=1 if "FAILED" in message else 2).err
    assert error.startswith(message) and error.count("\n") == 1
    if spec == "broken.py":
        assert "broken.py:2)" in error


def test_app_may_be_left_out_and_named_by_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("one.py").write_text("from detent import Detent\nshop = Detent('sqlite:///one.db')\n")
    assert load_app("one.py").url == load_app("one").url == load_app("one:shop").url == "sqlite:///one.db"
    with pytest.raises(DetentError, match="has no 'app'"):
        load_app("one:app")
    monkeypatch.setenv("DETENT_APP", "shop.py")
    assert "working on sqlite:///shop.db" in cli("worker", "--until-idle").out
    monkeypatch.delenv("DETENT_APP")
    assert cli("worker", code=2).err.startswith("USAGE: Missing argument 'APP'")


def test_migrate(cli: Cli) -> None:
    newest = cli("migrate", "--json").json["schema"]
    assert cli("migrate", "--json").json == {"from": newest, "schema": newest, "migrated": False}
    assert "is up to date" in cli("migrate").out
    fresh = cli("migrate", "--json", "--url", "sqlite:///fresh.db").json
    assert fresh == {"from": None, "schema": newest, "migrated": True}
    assert "CREATE TABLE detent_jobs" in cli("migrate", "--sql", "--url", "sqlite:///none.db").out
    assert cli("migrate", "--sql", "--json").json["migrations"][0]["number"] == 1
    assert not Path("none.db").exists()


def test_other_schemas_are_refused(cli: Cli) -> None:
    cli("migrate")
    connection = apsw.Connection("shop.db")
    connection.execute("INSERT INTO detent_schema VALUES (999)")  # additive: the doctor mentions it
    assert cli("jobs", "list").out == "No jobs.\n"
    assert cli("doctor", "--json").json["checks"][1]["do"] == "upgrade this Detent"
    connection.execute("INSERT INTO detent_schema VALUES (-999)")  # breaking: older programs are refused
    connection.close()
    assert re.match(r"SCHEMA_MISMATCH: .*upgrade Detent", cli("jobs", "list", code=1).err)
    assert cli("migrate", code=1).err.startswith("SCHEMA_MISMATCH")
    assert cli("doctor", "--json", code=1).json["checks"][1]["do"] == "upgrade this Detent"


def test_urls_are_shown_without_their_password() -> None:
    assert shown_url("postgresql://ann:s3cret@h/db") == "postgresql://ann:***@h/db"
    assert shown_url("postgresql://ann@h/db") == "postgresql://ann@h/db"
    assert shown_url("sqlite:///a.db") == "sqlite:///a.db"


def test_the_process_itself(cli: Cli) -> None:
    """`python -m detent` with --version, without arguments, and with --help."""
    command = [sys.executable, "-m", "detent"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert re.match(r"detent \d", done.stdout)
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    assert cli("jobs", code=2).out.count("Usage:") == 1
    assert "--max-retries" in cli("enqueue", "--help").out
    assert os.environ["DETENT_ACTOR"] == "ann"
