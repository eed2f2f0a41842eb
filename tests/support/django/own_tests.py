"""Runs Django's own tests of `django.tasks` against the Detent backend: own_tests.py FOLDER_OF_DJANGO_TESTS.

Needs Django 6 and the folder `tests` of its source distribution. Prints what is left out and why.
"""

import asyncio
import os
import sys
import tempfile
import threading
import unittest
from typing import Any

import django
from django.conf import settings

JOB_OPTIONS = {"job": {"max_retries": 0}}
OWN = "asserts the class of Django's own backend"
LEFT_OUT = {
    "DummyBackendTestCase": {
        "test_using_correct_backend": OWN,
        "test_clear": "clear() is a method of the dummy only",
        "test_refresh_result": "changes the dummy's list in memory",
        "test_refresh_result_async": "changes the dummy's list in memory",
    },
    "ImmediateBackendTestCase": {
        "test_using_correct_backend": OWN,
        "test_cannot_get_result": "Detent can",
        "test_cannot_refresh_result": "Detent can",
        "test_cannot_pass_run_after": "Detent can",
        "test_throws_keyboard_interrupt": "the task runs in a worker, not in the caller",
    },
    "TaskTestCase": {"test_using_correct_backend": OWN, "test_get_backend": OWN},
}


def backend(name: str, *queues: str) -> dict[str, Any]:
    return {"BACKEND": f"own_tests.{name}", "QUEUES": list(queues), "OPTIONS": JOB_OPTIONS}


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), sys.argv[1]]
    os.environ["DETENT_URL"] = f"sqlite:///{tempfile.mkdtemp()}/jobs.db"
    settings.configure(
        SECRET_KEY="for tests",
        INSTALLED_APPS=["detent.integrations.django"],
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TASKS={"default": backend("Recording")},
    )
    django.setup()

from detent.integrations.django.backend import DetentBackend  # noqa: E402 (needs the settings above)

ENQUEUED: list[Any] = []


class Recording(DetentBackend):
    """Like the dummy backend: keeps the results in a list."""

    results = ENQUEUED

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        ENQUEUED.append(super().enqueue(task, args, kwargs))
        return ENQUEUED[-1]

    def clear(self) -> None:
        ENQUEUED.clear()


class Eager(DetentBackend):
    """Like the immediate backend: a worker has run the task when `enqueue` returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        worker = threading.Thread(target=lambda: asyncio.run(self.app.run_worker(until_idle=True)))
        worker.start()
        worker.join()
        result.refresh()
        return result


def main() -> int:
    from django.test import override_settings
    from django.test.utils import setup_test_environment
    from tasks import test_custom_backend, test_dummy_backend, test_immediate_backend, test_tasks  # of Django

    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    several = {
        "default": backend("Recording", "default", "queue_1"),
        "immediate": backend("Eager"),
        "missing": {"BACKEND": "does.not.exist"},
    }
    for case, tasks in (
        (test_dummy_backend.DummyBackendTestCase, {"default": backend("Recording")}),
        (test_dummy_backend.DummyBackendTransactionTestCase, {"default": backend("Recording")}),
        (test_immediate_backend.ImmediateBackendTestCase, {"default": backend("Eager")}),
        (test_immediate_backend.ImmediateBackendTransactionTestCase, {"default": backend("Eager")}),
        (test_tasks.TaskTestCase, several),
    ):
        left_out = LEFT_OUT.get(case.__name__, {})
        skipped = {name: unittest.skip(why)(getattr(case, name)) for name, why in left_out.items()}
        against_detent = type(f"Detent{case.__name__}", (case,), skipped)
        suite.addTests(loader.loadTestsFromTestCase(override_settings(TASKS=tasks)(against_detent)))
    suite.addTests(loader.loadTestsFromModule(test_custom_backend))
    setup_test_environment()
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
