"""Helpers to corrupt a SQLite database: the definition of a corruption, SQL snippets for it, and `plant`."""

from typing import NamedTuple

import apsw


class Corruption(NamedTuple):
    name: str
    rule: str
    """The rule of `verify` that must report it."""
    pick: str | None
    """A query for the id of the job to corrupt, which is :job in the statements; None if it is not a single job."""
    statements: tuple[str, ...]


def corrupt(name: str, rule: str, pick: str | None, *statements: str) -> Corruption:
    return Corruption(name, rule, pick, statements)


def job(contract: str, status: str, more: str = "true") -> str:
    return (
        f"SELECT id FROM detent_job_list WHERE contract = '{contract}' AND status = '{status}' AND {more} ORDER"
        f" BY id LIMIT 1"
    )


def row(assignments: str) -> str:
    return f"UPDATE detent_job_list SET {assignments} WHERE id = :job"


def event(assignments: str, seq: str = "(SELECT version FROM detent_job_list WHERE id = :job)") -> str:
    return f"UPDATE detent_event_list SET {assignments} WHERE job_id = :job AND seq = {seq}"


def also_logged(name: str, source: str, target: str, **columns: str) -> tuple[str, str]:
    """Statements that append an event to the log and increment the row's version."""
    values = {"at": "updated_at", "execution_no": "execution_no", "retries": "retries", "data": "NULL"} | columns
    return (
        "INSERT INTO detent_event_list (job_id, seq, event, source, target, at, execution_no, retries, data)"
        f" SELECT id, version + 1, '{name}', '{source}', '{target}', {', '.join(values.values())}"
        " FROM detent_job_list WHERE id = :job",
        row("version = version + 1"),
    )


def owned(space: str, owner: str) -> str:
    return f"INSERT INTO detent_keys (space, key, job_id, created_at) VALUES ('{space}', 'free', {owner}, 1)"


def plant(path: str, corruption: Corruption) -> str | None:
    """Apply a corruption with triggers dropped and CHECK constraints off; returns the id of the corrupted job."""
    connection = apsw.Connection(path)
    try:
        for trigger in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger[0]}")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        make_views_writable(connection)
        victim = None
        if corruption.pick:
            rows = connection.execute(corruption.pick).fetchall()
            assert rows and rows[0][0], f"no job to corrupt: {corruption.pick}"
            victim = rows[0][0]
        for statement in corruption.statements:
            connection.execute(statement, {"job": victim})
        return victim
    finally:
        connection.close()


def make_views_writable(connection: apsw.Connection) -> None:
    """Let statements of this connection change jobs and events by their names, through the views."""
    stored = [row[1] for row in connection.execute("PRAGMA table_info(detent_jobs)").fetchall()]
    others = ", ".join(f"{name} = NEW.{name}" for name in stored if name not in ("n", "state", "worker", "lane"))
    connection.execute(_WRITABLE.replace("{others}", others))


_STATE = "contract = NEW.contract AND status = NEW.status AND phase = NEW.phase"
_EDGE = "event = NEW.event AND source = coalesce(NEW.source, '') AND target = NEW.target"
_WRITABLE = f"""
CREATE TEMP TRIGGER update_job INSTEAD OF UPDATE ON detent_job_list BEGIN
  INSERT INTO detent_states (id, contract, status, phase, retry_at, reopens)
  SELECT ((max(id) >> 4) + 1 << 4) + CASE NEW.phase WHEN 'claimable' THEN 0 WHEN 'leased' THEN 1 WHEN 'blocked' THEN 2
    ELSE 3 END, NEW.contract, NEW.status, NEW.phase, 0, 0 FROM detent_states
  HAVING NOT EXISTS (SELECT 1 FROM detent_states WHERE {_STATE});
  INSERT OR IGNORE INTO detent_actors (name) SELECT NEW.worker WHERE NEW.worker IS NOT NULL;
  INSERT OR IGNORE INTO detent_lane_parties (tenant_id, limit_key) VALUES (NEW.tenant_id, NEW.limit_key);
  UPDATE detent_jobs SET {{others}}, state = (SELECT max(id) FROM detent_states WHERE {_STATE}),
    worker = (SELECT id FROM detent_actors WHERE name = NEW.worker),
    lane = (NEW.lane & ~2147483647) + (SELECT id FROM detent_lane_parties WHERE tenant_id = NEW.tenant_id
      AND limit_key = NEW.limit_key)
  WHERE id = OLD.id;
END;
CREATE TEMP TRIGGER delete_job INSTEAD OF DELETE ON detent_job_list BEGIN
  DELETE FROM detent_jobs WHERE id = OLD.id;
END;
CREATE TEMP TRIGGER insert_event INSTEAD OF INSERT ON detent_event_list BEGIN
  INSERT OR IGNORE INTO detent_edges (event, source, target) VALUES (NEW.event, coalesce(NEW.source, ''), NEW.target);
  INSERT INTO detent_events (job_id, seq, edge, at, execution_no, retries, data, lane)
  SELECT NEW.job_id, NEW.seq, id, NEW.at, NEW.execution_no, NEW.retries, NEW.data,
    (SELECT lane FROM detent_jobs WHERE id = NEW.job_id) FROM detent_edges WHERE {_EDGE};
END;
CREATE TEMP TRIGGER update_event INSTEAD OF UPDATE ON detent_event_list BEGIN
  INSERT OR IGNORE INTO detent_edges (event, source, target) VALUES (NEW.event, coalesce(NEW.source, ''), NEW.target);
  UPDATE detent_events SET job_id = NEW.job_id, seq = NEW.seq, at = NEW.at, data = NEW.data, retries = NEW.retries,
    execution_no = NEW.execution_no, edge = (SELECT id FROM detent_edges WHERE {_EDGE}) WHERE n = OLD.n;
END;
CREATE TEMP TRIGGER delete_event INSTEAD OF DELETE ON detent_event_list BEGIN
  DELETE FROM detent_events WHERE n = OLD.n;
END;
"""
