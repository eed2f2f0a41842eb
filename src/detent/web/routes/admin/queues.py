"""Queues and contracts: what is left to do, pausing and resuming, the tables jobs obey."""

from typing import Annotated, Literal

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from detent.core.access import Power
from detent.core.errors import NotFound
from detent.engine.reads.queues import look_at_queues
from detent.engine.reads.views import contract_view, contracts_view
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

router = Router(tags=["queues"])
What = Annotated[str, Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="The name.")]


class Kind(BaseModel):
    """A queue, unless said otherwise."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["queue", "job_type", "tenant"] = "queue"


@router.route_for("GET", "/queues", needs=Power.READ, answers={200: schemas.Queues})
async def listing(asked: ApiRequest) -> Response:
    """What is due, comes later and is held in each queue, and everything that is paused."""
    asked.caller.everywhere("the list of queues")
    return answer((await look_at_queues(await asked.engine())).as_dict())


@router.route_for("POST", "/queues/{name:path}/pause", needs=Power.OPERATE, answers={200: schemas.Paused})
async def pause(
    asked: ApiRequest,
    name: What,
    which: Annotated[Kind, Query()],
    body: Annotated[schemas.Because | None, Body()] = None,
) -> Response:
    """Let nobody claim from a queue, a job type or a tenant; what is under way goes on."""
    _own(asked, which.kind, name)
    engine = await asked.engine()
    await engine.pause(which.kind, name, actor=asked.caller.person, reason=body.reason if body else None)
    return answer({"kind": which.kind, "name": name, "paused": True})


@router.route_for("POST", "/queues/{name:path}/resume", needs=Power.OPERATE, answers={200: schemas.Paused})
async def resume(asked: ApiRequest, name: What, which: Annotated[Kind, Query()]) -> Response:
    """End a pause; 404 if there is none."""
    _own(asked, which.kind, name)
    engine = await asked.engine()
    pauses = await engine.store.read(lambda tx: tx.pauses())
    if (which.kind, name) not in {(one[0], one[1]) for one in pauses}:
        raise NotFound(f"{which.kind.replace('_', ' ')} {name!r} is not paused", code="PAUSE_NOT_FOUND")
    await engine.resume(which.kind, name, actor=asked.caller.person)
    return answer({"kind": which.kind, "name": name, "paused": False})


def _own(asked: ApiRequest, kind: str, name: str) -> None:
    """A token that is bound to a tenant may stop its tenant, nothing that others share."""
    if kind == "tenant":
        asked.caller.tenant_for(name)
    else:
        asked.caller.everywhere(f"the {kind.replace('_', ' ')} {name!r}")


@router.route_for("GET", "/contracts", needs=Power.READ, answers={200: schemas.Contracts}, tags=["contracts"])
async def contracts(asked: ApiRequest) -> Response:
    """The contracts Detent carries and those this database has met."""
    return answer({"contracts": contracts_view((await asked.engine()).contracts)})


@router.route_for("GET", "/contracts/{name}", needs=Power.READ, answers={200: schemas.Contract}, tags=["contracts"])
async def contract(asked: ApiRequest, name: What) -> Response:
    """One contract's table: statuses with phases, edges with moves, codes and retries."""
    known = (await asked.engine()).contracts
    if name not in known:
        raise NotFound(f"contract {name!r} is not known; known are {', '.join(sorted(known))}", code="CONTRACT_UNKNOWN")
    return answer(contract_view(known[name]))
