"""The Django application: its label is `detent`, and it registers the checks."""

from typing import Any

from django.apps import AppConfig
from django.core import checks


class DetentConfig(AppConfig):
    name = "detent.integrations.django"
    label = "detent"
    verbose_name = "Detent jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(check_backend)


def check_backend(app_configs: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """detent.W001: no task backend of Detent is configured, so this app has nothing to do."""
    from .backend import DetentBackend, task_backends

    if any(isinstance(backend, DetentBackend) for backend in task_backends.all()):
        return []
    path = "detent.integrations.django.backend.DetentBackend"
    return [
        checks.Warning(
            "detent.integrations.django is installed, but no entry of TASKS uses its backend.",
            hint=f'TASKS = {{"default": {{"BACKEND": "{path}"}}}}',
            id="detent.W001",
        )
    ]
