"""The Django integration in a small project with its own processes: tasks, transactions, worker, results, admin."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import detent
from support.servers.databases import Database, house, newest

PROJECT = Path(__file__).parents[1] / "support" / "django" / "project"
SOURCES = Path(detent.__file__).parent.parent


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    yield database
    database.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    database.release()


def run(database: Database, *arguments: str) -> str:
    environment = os.environ | {
        "PROJECT_DATABASE": database.url,
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(PROJECT)]),
        "DJANGO_SETTINGS_MODULE": "settings",
    }
    environment.pop("DETENT_URL", None)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ENQUEUE = """
import asyncio, django
django.setup()
from django.db import connection, transaction
from shop.models import Order
from shop.tasks import attempt, count_orders, fails, ship
from detent.integrations.django.backend import task_backends

backend = task_backends["default"]
with transaction.atomic():
    Order.objects.create(number=1)
    kept = ship.enqueue(1)
try:
    with transaction.atomic():
        Order.objects.create(number=2)
        ship.enqueue(2)
        raise RuntimeError
except RuntimeError:
    pass
with transaction.atomic():
    Order.objects.create(number=3)
    try:
        with transaction.atomic():
            ship.enqueue(3)
            raise RuntimeError
    except RuntimeError:
        pass
results = [kept, count_orders.enqueue(), attempt.using(priority=7).enqueue(), fails.enqueue()]
results.append(asyncio.run(ship.aenqueue(number=3)))
print(*(result.id for result in results))
backend.app.sync.close()
"""
CHECK = """
import sys, django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
from shop.models import Order
from detent.integrations.django import application
from detent.integrations.django.backend import TaskResultDoesNotExist, TaskResultStatus, task_backends

backend = task_backends["default"]
assert backend.app is backend.app
application.Detent = None  # one application is made, not one for each use
shipped, counted, attempted, failed, awaited = map(backend.get_result, sys.argv[1:])
assert (shipped.return_value, counted.return_value, attempted.return_value, awaited.return_value) == (1, 2, 1, 3)
assert shipped.args == [1] and awaited.kwargs == {"number": 3} and attempted.task.priority == 7
assert shipped.attempts == 1 and shipped.enqueued_at < shipped.started_at <= shipped.finished_at
assert failed.status == TaskResultStatus.FAILED
assert failed.errors[0].exception_class_path == "shop.models.Order.DoesNotExist"
assert sorted(Order.objects.values_list("number", "shipped")) == [(1, True), (3, True)]
try:
    backend.get_result("123")
except TaskResultDoesNotExist:
    pass
else:
    raise AssertionError("a result for an unknown id")

client = Client()
client.force_login(User.objects.create_superuser("ann"))
page = client.get("/admin/detent/job/").content.decode()
assert shipped.id in page and "http://127.0.0.1:8400/jobs/" in page
assert client.get(f"/admin/detent/job/{shipped.id}/change/").status_code == 200
assert client.get("/admin/detent/job/add/").status_code == 403
assert client.post(f"/admin/detent/job/{shipped.id}/delete/", {"post": "yes"}).status_code == 403
assert "JOB_EXECUTION_FAILED" in client.get("/admin/detent/deadletter/").content.decode()
assert client.get("/admin/detent/schedule/").status_code == 200
backend.app.sync.close()
"""


def test_tasks_from_the_enqueue_to_the_result(database: Database) -> None:
    run(database, "manage.py", "migrate", "--run-syncdb", "-v", "0")
    assert "no issues" in run(database, "manage.py", "check")
    ids = run(database, "-c", ENQUEUE).split()
    assert database.sql("SELECT count(*) FROM detent.jobs") == [(5,)]
    run(database, "manage.py", "detent", "worker", "--processes", "2", "--until-idle")
    run(database, "-c", CHECK, *ids)
    assert "no violations" in run(database, "manage.py", "detent", "verify")


@pytest.mark.drill
def test_the_own_tests_of_django(tmp_path: Path) -> None:
    """Django 6 and its source distribution are installed into a folder of their own; it needs Python 3.12."""
    python = _newer_python()
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(tmp_path / "venv" / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "django>=6,<7", f"{SOURCES.parent}[postgres]"], check=True)
    subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "django>=6,<7", "-d", tmp_path], check=True)
    (archive,) = tmp_path.glob("django-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    folder = next(path for path in tmp_path.glob("django-*") if path.is_dir()) / "tests"
    without_path = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = PROJECT.parent / "own_tests.py"
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", script, folder],
        env=without_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert re.search(r"Ran [78]\d tests", done.stderr) and "OK (skipped=11)" in done.stderr, done.stderr


def _newer_python() -> str:
    """A Python of at least 3.12: one on the PATH, or one of pyenv's."""
    names = [shutil.which(f"python3.{minor}") for minor in (14, 13, 12)]
    installed = [str(path) for path in Path.home().glob(".pyenv/versions/3.1[2-4]*/bin/python")]
    for path in filter(None, [*names, *installed]):
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    raise AssertionError("no Python of at least 3.12 is installed")
