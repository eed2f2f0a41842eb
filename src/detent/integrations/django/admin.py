"""The admin for jobs, dead letters and schedules: read-only, with links to Detent's dashboard.

`DETENT_DASHBOARD_URL = "https://jobs.example.com"` in the settings gives the links.
"""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.paginator import Paginator
from django.utils.functional import cached_property
from django.utils.html import format_html

from .application import url_of
from .backend import DetentBackend, task_backends
from .models import DeadLetter, Job, Schedule

_MOST_COUNTED = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts at most 10,000 rows, so that a page does not read a table of millions."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return len(rows.order_by().values_list("pk")[:_MOST_COUNTED])


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows rows and changes nothing. `page` is the path of the dashboard's page for a row."""

    paginator = BoundedPaginator
    show_full_result_count = False
    page = ""

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    @admin.display(description="dashboard")
    def dashboard(self, row: Any) -> str:
        base = getattr(settings, "DETENT_DASHBOARD_URL", None)
        if not base:
            return "set DETENT_DASHBOARD_URL"
        return format_html('<a href="{}">open</a>', base.rstrip("/") + self.page.format(row=row))


class JobAdmin(ReadOnlyAdmin):
    page = "/jobs/{row.id}"
    list_display = ("id", "job_type", "queue", "status", "retries", "error_code", "created_at", "dashboard")
    ordering = ("-id",)
    search_fields = ("=id", "=job_type", "=queue", "=status", "=error_code")


class DeadLetterAdmin(ReadOnlyAdmin):
    page = "/dead-letters/{row.id}"
    list_display = ("id", "job_type", "error_code", "error_message", "status", "created_at", "dashboard")
    ordering = ("-id",)
    search_fields = ("=job_id", "=job_type", "=error_code", "=status")


class ScheduleAdmin(ReadOnlyAdmin):
    page = "/schedules?text={row.name}"
    list_display = ("name", "kind", "expression", "timezone", "job_type", "queue", "dashboard")
    ordering = ("name",)
    search_fields = ("=name", "=job_type")


def _shares_the_database() -> bool:
    """True if the jobs are in the schema `detent` of Django's default Postgres database, which the models read."""
    return any(
        isinstance(backend, DetentBackend)
        and backend.app.url == url_of("default")
        and backend.app.url.startswith("postgresql")
        for backend in task_backends.all()
    )


if _shares_the_database():
    admin.site.register(Job, JobAdmin)
    admin.site.register(DeadLetter, DeadLetterAdmin)
    admin.site.register(Schedule, ScheduleAdmin)
