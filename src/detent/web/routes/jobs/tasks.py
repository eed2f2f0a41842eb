"""Tasks by their task_id, in the words of the contract men: submit, read, follow and cancel without any other name."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query
from starlette.responses import Response

from detent.core.access import Power
from detent.core.contract.men import MEN
from detent.core.errors import InvalidInput, NotFound
from detent.engine.reads import responses
from detent.engine.reads.responses import JsonObject
from detent.engine.reads.views import History
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

from .filters import Paged
from .jobs import TASK_SUBMISSION, EventPageQuery, submit_all

router = Router(tags=["tasks"])
TaskId = Annotated[str, schemas.in_path("The task_id of the task.", schemas.PRINTABLE)]


@router.route_for(
    "POST",
    "/tasks",
    Power.SUBMIT,
    responses={201: responses.TaskSubmitResponse, 200: responses.TaskSubmitResponse},
    extra=TASK_SUBMISSION,
)
async def submit_task(request: ApiRequest) -> Response:
    """Submit a task under the contract men: 201 if it is new, 200 if its task_id or idempotency_key is known.

    409 TASK_DUPLICATE with conflict_fields and the task if a critical field differs; 422 if a value is invalid.
    """
    body = await request.json()
    if isinstance(body, dict) and body.setdefault("contract", MEN.name) != MEN.name:
        raise InvalidInput(
            "a task has the contract men; submit others to /jobs", code="INPUT_INVALID", field="contract"
        )
    (submitted,) = await submit_all(request, [body], fresh_id=request.fresh_id)
    answer = {"idempotent_hit": submitted.hit, "task": request.submitted_view(submitted).get("task")}
    location = f"{request.scope['path']}/{quote(submitted.job.task_id or '', safe='')}"
    return json_response(answer, 200 if submitted.hit else 201, {"Location": location})


@router.route_for("GET", "/tasks/{task_id}", Power.READ, responses={200: responses.Task})
async def get_task(request: ApiRequest, task_id: TaskId) -> JsonObject:
    """The task. 404 JOB_NOT_FOUND if it does not exist."""
    return request.task_view((await _history(request, task_id)).job)


@router.route_for("GET", "/tasks/{task_id}/events", Power.READ)
async def list_task_events(
    request: ApiRequest, task_id: TaskId, query: Annotated[EventPageQuery, Query()]
) -> Paged[responses.TaskEvent]:
    """The published events of a task (task_state_changed), oldest first."""
    entries: list[Any] = (await _history(request, task_id)).entries(payloads=request.caller.payloads)
    return query.cut_log([entry["envelope"] for entry in entries if entry["envelope"] is not None])


@router.route_for("POST", "/tasks/{task_id}/cancel", Power.OPERATE, responses={200: responses.Task})
async def cancel_task(request: ApiRequest, task_id: TaskId, body: schemas.OptionalReason = None) -> JsonObject:
    """Cancel a task; a running one at once. 409 TASK_INVALID_TRANSITION if it has ended."""
    job = (await _history(request, task_id)).job
    return request.task_view(await request.engine.jobs.cancel(job.id, request.acting(body)))


async def _history(request: ApiRequest, task_id: str) -> History:
    history = await request.engine.jobs.history(task_id)
    if not history.contract.keys.task_id_is_key or history.job.task_id != task_id:
        raise NotFound(f"task {task_id!r} does not exist; check the id, it may have been pruned", job_id=task_id)
    return history
