"""Read-only models on views and tables of the schema `detent`, for the admin. Postgres only; Django never writes."""

# mypy: disable-error-code="var-annotated"

from datetime import datetime
from typing import Any

from django.db import models

from detent.core.times import to_datetime


class Moment(models.BigIntegerField):  # type: ignore[type-arg]
    """Microseconds since 1970 in the database, an aware datetime in Python."""

    def from_db_value(self, value: int | None, *_: Any) -> datetime | None:
        return None if value is None else to_datetime(value)


class Job(models.Model):
    """A row of the view detent.job_list."""

    id = models.UUIDField(primary_key=True)
    job_type = models.TextField()
    queue = models.TextField()
    tenant_id = models.TextField()
    contract = models.TextField()
    status = models.TextField()
    priority = models.IntegerField()
    execution_no = models.IntegerField()
    retries = models.IntegerField()
    error_code = models.TextField(null=True)
    error_message = models.TextField(null=True)
    payload = models.TextField()
    result = models.TextField(null=True)
    worker = models.TextField(null=True)
    trace_id = models.TextField(null=True)
    created_at = Moment()
    due_at = Moment(null=True)
    started_at = Moment(null=True)
    finished_at = Moment(null=True)

    class Meta:
        managed = False
        db_table = '"detent"."job_list"'

    def __str__(self) -> str:
        return f"{self.job_type} {self.id}"


class DeadLetter(models.Model):
    """A row of detent.dead_letters: a job that failed for good."""

    id = models.TextField(primary_key=True)
    job_id = models.UUIDField()
    job_type = models.TextField()
    queue = models.TextField()
    tenant_id = models.TextField()
    contract = models.TextField()
    status = models.TextField()
    error_class = models.TextField(null=True)
    error_code = models.TextField()
    error_message = models.TextField(null=True)
    retries = models.IntegerField()
    payload = models.TextField()
    first_failed_at = Moment()
    created_at = Moment()

    class Meta:
        managed = False
        db_table = '"detent"."dead_letters"'
        verbose_name = "dead letter"

    def __str__(self) -> str:
        return f"{self.job_type} {self.error_code}"


class Schedule(models.Model):
    """A row of detent.schedules."""

    id = models.TextField(primary_key=True)
    name = models.TextField()
    tenant_id = models.TextField()
    kind = models.TextField()
    expression = models.TextField()
    timezone = models.TextField()
    job_type = models.TextField()
    queue = models.TextField()
    payload = models.TextField()
    anchor = Moment()

    class Meta:
        managed = False
        db_table = '"detent"."schedules"'

    def __str__(self) -> str:
        return f"{self.name}"
