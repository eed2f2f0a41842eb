"""The names of `django.tasks`: of Django 6, or of the package `django-tasks` for Django 5.2."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

_PACKAGE = next((name for name in ("django.tasks", "django_tasks") if find_spec(name)), None)
if _PACKAGE is None:
    raise ImproperlyConfigured("Django before 6.0 has no tasks: pip install django-tasks")


def _from(module: str) -> Any:
    """A module of the package; Any, because the two packages have different types."""
    return import_module(f"{_PACKAGE}{module}")


task_backends: Any = _from("").task_backends
task_enqueued, task_started, task_finished = (
    getattr(_from(".signals"), name) for name in ("task_enqueued", "task_started", "task_finished")
)
BaseTaskBackend: Any = _from(".backends.base").BaseTaskBackend
Task: Any = _from(".base").Task
TaskContext: Any = _from(".base").TaskContext
TaskError: Any = _from(".base").TaskError
TaskResult: Any = _from(".base").TaskResult
TaskResultStatus: Any = _from(".base").TaskResultStatus
TaskResultDoesNotExist: Any = _from(".exceptions").TaskResultDoesNotExist
normalize_json: Any = _from(".base").normalize_json
