"""Saved views: filters of lists that a person keeps under a name. Each person sees only their own."""

from typing import Annotated, Literal

from fastapi import Path
from pydantic import Field, StringConstraints

from detent.core.access import Power
from detent.core.errors import InvalidInput, NotFound
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.ports.listing import SavedView
from detent.ports.tx import Tx
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

router = Router(tags=["dashboard"])
MAX_VIEWS = 50
Page = Annotated[Literal["jobs", "dead_letters"], Path(description="The list that the view belongs to.")]
Name = Annotated[str, schemas.in_path("The name of the view.", schemas.PRINTABLE)]


class ViewRequest(schemas.RequestBody):
    query: Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00]*$")] = Field(
        description="The query of the page's address, without its question mark."
    )


def _owner(caller: Caller) -> tuple[str, str]:
    """(tenant, person): people of two tenants may have the same name."""
    return caller.tenant or "", caller.person


@router.route_for("GET", "/views", Power.READ)
async def list_views(request: ApiRequest) -> list[responses.SavedView]:
    """The views that the caller has saved."""
    views = await request.engine.store.read(lambda tx: tx.views.views(*_owner(request.caller)))
    return [show(responses.SavedView, view) for view in views]


@router.route_for("PUT", "/views/{page}/{name}", Power.READ)
async def save_view(request: ApiRequest, page: Page, name: Name, body: ViewRequest) -> responses.SavedView:
    """Save a view, or replace the one of this name. 422 VIEWS_FULL if the caller has 50 others."""
    tenant, person = _owner(request.caller)

    async def save(tx: Tx) -> SavedView:
        others = [view for view in await tx.views.views(tenant, person) if (view.page, view.name) != (page, name)]
        if len(others) >= MAX_VIEWS:
            raise InvalidInput(f"you have {MAX_VIEWS} saved views; delete one first", code="VIEWS_FULL", field="name")
        view = SavedView(tenant, person, page, name, body.query, tx.now)
        await tx.views.put_view(view)
        return view

    return show(responses.SavedView, await request.engine.store.write(save))


@router.route_for("DELETE", "/views/{page}/{name}", Power.READ)
async def delete_view(request: ApiRequest, page: Page, name: Name) -> responses.SavedViewDeleted:
    """Delete a saved view. 404 VIEW_NOT_FOUND if the caller has none of this name."""
    tenant, person = _owner(request.caller)
    if not await request.engine.store.write(lambda tx: tx.views.drop_view(tenant, person, page, name)):
        raise NotFound(f"you have no view {name!r} of {page}", code="VIEW_NOT_FOUND", name=name)
    return {"deleted": name}
