"""docs/contracts: every name of a document has a row, every place in a row exists, the examples print what is shown."""

import contextlib
import inspect
import io
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import apsw
import pytest
import typer

import detent
from detent.cli import app as command_line
from detent.client.connect import CONTRACT_VARIABLES
from detent.core.alerts import DEFAULT_RULES
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import DeadLetter, Event
from detent.engine import Engine
from detent.engine.execution.steps import STEP_FINISHED, STEP_STARTED
from detent.ports.stream import StreamSettings
from detent.proof.verify.rules import RULES
from detent.stores.sqlite.store import SqliteStore
from detent.transports.redis_streams.messages import TASK_FIELDS, dead_letter_fields
from detent.web.app import create_app
from detent.web.http.route import ApiRoute
from detent.web.http.settings import Settings
from support.contracts.job_history import JobHistory
from support.stores import Place, PostgresPlace, SqlitePlace, open_place

SOURCE = Path(detent.__file__).parent
FOLDER = SOURCE.parents[1] / "docs" / "understand" / "contracts"
DOCUMENTS = sorted(path.name.removesuffix(".md") for path in FOLDER.glob("*.md") if "zh-CN" not in path.name)
NAMES = {
    "gate-b2": """jobs job_id tenant_id job_type status retry_count idempotency_key trace_id error_code payload_json
        created_at updated_at queued running retrying succeeded dlq_pending dlq_recorded failed jobs.status
        WF_STATE_TRANSITION_INVALID retryable base_ms max_backoff_ms jitter_ms delay_ms dlq_items dlq_id requeue discard
        reason RP-001 RP-002 RP-003 RP-004 RP-005 status_transition force_fail transient_fail""",
    "men": """pending ready running succeeded failed cancelled TASK_INVALID_TRANSITION attempt max_retries max_attempts
        TASK_TIMEOUT TASK_EXECUTION_FAILED TASK_RETRY_EXHAUSTED TASK_DUPLICATE last_error_code task_id schedule_type at
        scheduled_at timeout_ms idempotency_key idempotency_scope payload task_state_changed source session_key event_id
        from_state to_state occurred_at reason_code reason_message idempotent_hit task state last_error_reason
        created_at updated_at started_at finished_at""",
    "p3c": """queued running succeeded failed retry_scheduled interrupted cancelled worker_claim cancel_command
        completed non_retryable_error retryable_error process_restart retry_due recovery_resume recovery_abort
        task_runs attempt task_id idempotency_key uq_task_runs_idempotency_key create_for_task next_retry_at run_status
        run.status.changed events payload run_id previous_status status error_code actor trace_id
        trace-run-{run_id}-{uuid}
        app.runtime.failure_injection timeout transient_error process_restart_interrupt""",
    "streams": """stream:task stream:result stream:dlq cg:workers queued running succeeded failed waiting_approval
        task_id XACK task.heartbeat VISIBILITY_TIMEOUT_S HEARTBEAT_INTERVAL_S XAUTOCLAIM XPENDING XCLAIM task.reclaimed
        MAX_RETRIES retry_count idempotency_key tool_name payload error failed_at task.dlq dlq_replay event_log
        event_type task.created task.claimed task.succeeded task.failed approval.requested approval.approved
        approval.rejected Guard""",
    "formal": """Queued Running Waiting Parked Retrying Completed Failed Cancelled Leased StatusPending StatusRunning
        StatusWaiting StatusParked StatusRetrying StatusCompleted StatusFailed StatusCancelled job_created job_queued
        job_requeued job_leased job_running job_waiting wait_completed job_completed job_failed job_cancelled JobCreated
        JobQueued JobRequeued JobLeased JobRunning JobWaiting WaitCompleted JobCompleted JobFailed JobCancelled
        plan_generated node_started tool_invocation_* DeriveStatusFromEvents IsJobBlocked attempt_id 1 2 3 4 Reclaim
        signal""",
}
"""The names that each document uses, typed in from it."""


class Row(NamedTuple):
    names: tuple[str, ...]
    kind: str
    places: tuple[str, ...]


def page(document: str, language: str = "") -> str:
    return (FOLDER / f"{document}{language}.md").read_text("utf-8")


def rows(text: str) -> list[Row]:
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [Row(_spans(row[0]), row[1], _spans(row[2])) for row in cells]


def _spans(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def block(text: str, kind: str) -> str:
    (only,) = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return str(only)


def test_there_is_a_page_for_every_document() -> None:
    assert set(DOCUMENTS) == set(NAMES) == set(CONTRACTS) - {"standard"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_name_of_the_document_has_a_row(document: str) -> None:
    listed = {name for row in rows(page(document)) for name in row.names}
    assert set(NAMES[document].split()) - listed == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_chinese_page_has_the_same_rows_and_the_same_example(document: str) -> None:
    english, chinese = page(document), page(document, ".zh-CN")
    assert rows(english) == rows(chinese)
    assert [block(english, kind) for kind in ("python", "text")] == [
        block(chinese, kind) for kind in ("python", "text")
    ]
    prose = re.sub(r"`[^`]*`|```.*?```", "", chinese, flags=re.DOTALL)
    assert len(re.findall(r"[\u4e00-\u9fff]", prose)) > 150


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_place_exists(document: str) -> None:
    wrong = [
        f"{row.kind} {place}"
        for row in rows(page(document))
        for place in row.places
        if row.kind != "SQL" and not KINDS[row.kind](CONTRACTS[document], place)
    ]
    assert wrong == []
    assert all(row.places for row in rows(page(document)))


@pytest.mark.parametrize("kind", ["sqlite-thread", "postgres"])
def test_every_view_and_column_exists(kind: str, tmp_path: Path) -> None:
    database = open_place(kind, tmp_path)
    try:
        known = {f"{view}.{column}" for view, column in _columns(database)}
    finally:
        database.close()
    places = {place for name in DOCUMENTS for row in rows(page(name)) if row.kind == "SQL" for place in row.places}
    known |= {name.partition(".")[0] for name in known}
    assert len(places) > 30 and places - known == set()


def _columns(place: Place) -> list[Any]:
    if isinstance(place, PostgresPlace):
        return place.database.sql(
            "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'detent'"
        )
    assert isinstance(place, SqlitePlace)
    connection = apsw.Connection(str(place.path))
    statement = "SELECT substr(t.name, 8), c.name FROM pragma_table_list t CROSS JOIN pragma_table_info(t.name) c"
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_example_prints_what_the_page_shows(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block(page(document), "python"), {"__name__": "__main__"})  # noqa: S102
    assert printed.getvalue() == block(page(document), "text")


def _has_route(contract: Contract, place: str) -> bool:
    method, _, address = place.partition(" ")
    path, _, parameter = address.partition("?")
    for route in _routes():
        if method in route.methods and _shape(route.path) == _shape(path):
            hints = get_type_hints(route.endpoint)
            models = [getattr(hint, "model_fields", {}) for hint in hints.values()]
            return not parameter or any(parameter in fields for fields in models)
    return False


@cache
def _routes() -> list[ApiRoute]:
    app = create_app(Engine(SqliteStore(":memory:"), CONTRACTS), Settings(internal=True))
    return [route for route in app.routes if isinstance(route, ApiRoute)]


def _shape(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def _has_command(contract: Contract, place: str) -> bool:
    command: Any = typer.main.get_command(command_line)
    words = place.removeprefix("detent ").split()
    for word in words:
        if word.startswith("--"):
            return any(word in parameter.opts for parameter in command.params)
        command = command.commands.get(word)
        if command is None:
            return False
    return True


def _is_importable(contract: Contract, place: str) -> bool:
    words = place.split(".")
    for end in range(len(words), 0, -1):
        try:
            found: Any = import_module(".".join(words[:end]))
        except ImportError:
            continue
        for word in words[end:]:
            found = getattr(found, word, None)
        return found is not None
    return False


def _is_variable(contract: Contract, place: str) -> bool:
    settings = {name.upper() for name in StreamSettings.__dataclass_fields__}
    known = {
        *CONTRACT_VARIABLES,
        *(f"DETENT_{name}" for name in settings),
        "VISIBILITY_TIMEOUT_S",
        "HEARTBEAT_INTERVAL_S",
    }
    name = place.removeprefix("DETENT_").lower()
    texts = (f'"{place}"', f'from_environment("{name}"')
    return place in known or any(text in path.read_text("utf-8") for path in SOURCE.rglob("*.py") for text in texts)


def _has_option(contract: Contract, place: str) -> bool:
    value: Any = {"retry": contract.retry.as_dict(), "loss": {"max_interruptions": contract.loss.max_interruptions}}
    for name in place.split("."):
        value = value.get(name)
    return value is not None


def _in_envelope(contract: Contract, place: str) -> bool:
    history = JobHistory(contract.name)
    assert contract.envelope is not None
    sent = [contract.envelope(history.job, event) for event in _events(history)]
    value: Any = next(body for body in sent if body)
    for name in place.split("."):
        if name not in value:
            return False
        value = value[name]
    return True


def _events(history: JobHistory) -> list[Event]:
    return [event for change in history.changes for event in change.events]


def _is_in_redis(contract: Contract, place: str) -> bool:
    settings = StreamSettings("redis://")
    stream, _, field = place.rpartition(".")
    if not stream:
        return place in (settings.task_stream, settings.result_stream, settings.dlq_stream, settings.worker_group)
    letter = DeadLetter("d", "j", "t", "streams", "x", "q", None, "E", "m", "{}", "{}", 4, "open", 0, 0, 0)
    names = dead_letter_fields(letter)[::2] if stream == settings.dlq_stream else [n.decode() for n in TASK_FIELDS]
    return field in names


def _is_code(contract: Contract, place: str) -> bool:
    codes = {*contract.codes.values(), *contract.retry.permanent_codes}
    return place in codes or any(place == kind.code for kind in DetentError.__subclasses__())


def _is_note(contract: Contract, place: str) -> bool:
    dead_letter = contract.dead_letters.note if contract.dead_letters else None
    return place in {
        *contract.approval_notes.values(),
        contract.heartbeat_note,
        dead_letter,
        STEP_STARTED,
        STEP_FINISHED,
    }


def _is_metric(contract: Contract, place: str) -> bool:
    return f'"{place.removesuffix("_total")}' in inspect.getsource(import_module("detent.observability.metrics"))


KINDS: dict[str, Callable[[Contract, str], bool]] = {
    "status": lambda contract, place: place in contract.statuses,
    "event": lambda contract, place: place in contract.state_events,
    "note": _is_note,
    "code": _is_code,
    "option": _has_option,
    "field": lambda contract, place: place in contract.view(JobHistory(contract.name).job),
    "envelope": _in_envelope,
    "rule": lambda contract, place: place in RULES,
    "alert": lambda contract, place: place in {rule.name for rule in DEFAULT_RULES},
    "metric": _is_metric,
    "REST": _has_route,
    "CLI": _has_command,
    "Python": _is_importable,
    "environment": _is_variable,
    "Redis": _is_in_redis,
}
"""Kind of a place -> whether Detent has it."""


def test_a_place_that_does_not_exist_is_found() -> None:
    wrong = {
        "status": "asleep", "event": "job.dreamt", "note": "x", "code": "X", "option": "retry.base", "field": "x",
        "envelope": "payload.x", "rule": "x", "alert": "x", "metric": "detent_x", "REST": "POST /api/v1/x",
        "CLI": "detent dlq burn", "Python": "detent.x", "environment": "DETENT_X", "Redis": "stream:x",
    }  # fmt: skip
    assert set(wrong) == set(KINDS)
    assert [kind for kind, place in wrong.items() if KINDS[kind](CONTRACTS["p3c"], place)] == []
