"""The log of a database as the checker takes it, read past Detent."""

from pathlib import Path

import apsw

from detent.core.limits import JobKind
from detent.proof.verify.limits import Step
from support.servers.databases import Database

_STEPS = """SELECT {job}, e.at, j.contract, e.source, e.target, j.queue, j.job_type, j.tenant_id, j.limit_key
FROM {events} e JOIN {jobs} j ON j.id = e.job_id ORDER BY {order}"""


def steps_of_file(path: Path) -> list[Step]:
    """In the order of commits."""
    connection = apsw.Connection(str(path))
    try:
        return [
            Step(*row[:5], JobKind(*row[5:]))
            for row in connection.execute(
                _STEPS.format(events="detent_event_list", jobs="detent_job_list", job="e.job_id", order="e.n")
            )
        ]
    finally:
        connection.close()


def steps_of_server(database: Database) -> list[Step]:
    """In the order of the server's clock, an end before a beginning at the same moment."""
    rows = database.sql(
        _STEPS.format(events="events", jobs="jobs", job="e.job_id::text", order="e.at, e.target = 'running', e.seq")
    )
    return [Step(*row[:5], JobKind(*row[5:])) for row in rows]
