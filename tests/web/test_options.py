"""Every option of the tables reaches the rows, Python, the command line, the REST API and the OpenAPI document."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

from detent import Detent
from detent.cli.option_groups import TableOptions, expand_option_groups
from detent.cli.run.worker import enqueue
from detent.core.contract.builtin import CONTRACTS
from detent.core.job import Job
from detent.core.options.job_options import STORED_WITH_JOBS, RunOptions, UsingOptions
from detent.core.options.option import COMMAND, PYTHON, REST, options_of
from detent.core.schedule import Schedule
from detent.engine import Submission
from detent.engine.reads import responses
from detent.engine.schedules.request import ScheduleRequest
from detent.stores.rows import CREATED
from detent.web.app import create_app
from detent.web.openapi.document import document


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    app = create_app(Detent("sqlite:///:memory:"))
    described: dict[str, Any] = document(app, CONTRACTS, is_open=True)["components"]["schemas"]
    return described


def test_rows_store_the_options() -> None:
    assert {field.name for field in fields(Job)} >= set(STORED_WITH_JOBS) and set(STORED_WITH_JOBS) <= set(CREATED)
    assert {field.name for field in fields(Schedule)} >= {field.name for field in fields(RunOptions)}


def test_answers_show_the_stored_options(schemas: dict[str, Any]) -> None:
    public = {*options_of(Submission, REST)} & {*STORED_WITH_JOBS}
    assert "limit_key" in public and public <= responses.Job.__annotations__.keys()
    assert public <= schemas["Job"]["properties"].keys() and public <= set(schemas["Job"]["required"])
    assert {field.name for field in fields(RunOptions)} <= schemas["Schedule"]["properties"].keys()


def test_using_takes_the_options_of_python() -> None:
    names = {row.name for row in options_of(Submission, PYTHON).values()}
    assert names - {"contract"} == UsingOptions.__annotations__.keys()


def test_the_command_line_has_every_option() -> None:
    parameters = inspect.signature(expand_option_groups(enqueue)).parameters
    assert options_of(Submission, COMMAND).keys() <= parameters.keys()
    names = {option.annotation.__metadata__[0].default for option in parameters.values()}
    assert {"--key", "--scope", "--tenant", "--at", "--timeout-ms", "--max-retries", "--limit-key"} <= names


def test_a_command_gets_only_the_options_that_are_set() -> None:
    table = TableOptions(ScheduleRequest, without=("payload",))
    arguments: dict[str, Any] = {parameter.name: None for parameter in table.parameters()}
    rest = {**arguments, "every": "90", "priority": 0, "name": "nightly"}
    assert table.take(rest) == {"every": 90.0, "priority": 0} and rest == {"name": "nightly"}


def test_request_bodies_have_every_option(schemas: dict[str, Any]) -> None:
    job, schedule = options_of(Submission, REST), options_of(ScheduleRequest, REST)
    assert schemas["Submission.standard"]["properties"].keys() == {"job_type", *job}
    body = schemas["ScheduleCreateRequest"]["properties"]
    assert body.keys() == {"name", "job_type", "paused", "reason", "timezone", *schedule}
    assert body["tz"]["description"] == "Another name of timezone."
    schedule["timezone"] = schedule.pop("tz")
    assert body["priority"]["anyOf"][0] == {"type": "integer", "minimum": -100, "maximum": 100}
    assert body["misfire"]["anyOf"][0]["enum"] == ["skip", "once", "all"]
    assert all(body[name]["description"] == row.help for name, row in schedule.items())
