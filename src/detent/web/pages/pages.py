"""The dashboard: thin pages at the root beside the API, whose scripts are clients of that API and nothing more."""

from dataclasses import dataclass

from fastapi import FastAPI
from starlette.responses import RedirectResponse, Response

from detent.core.access import Power
from detent.engine.control.access import Unauthorized
from detent.web.http.authentication import COOKIE, LOCAL, Caller, csrf_of
from detent.web.http.route import ApiRequest, Router
from detent.web.routes.admin import overview, verification
from detent.web.routes.jobs import approvals, bulk, detail

from .assets import PREFIX, asset
from .shell import Viewer, depth_of, render, viewer_of

router = Router("", tags=["pages"], include_in_schema=False)
API = (overview.router, detail.router, bulk.router, approvals.router, verification.router)
"""What the pages ask for beside what people and programs did before there were pages."""


@dataclass(frozen=True, slots=True)
class Page:
    """One address. name: its script, its words and, if it is listed, its place in the menu."""

    path: str
    name: str
    needs: Power = Power.READ
    listed: bool = True


PAGES = (
    Page("/", "overview"),
    Page("/jobs", "jobs"),
    Page("/jobs/{job_id}", "job", listed=False),
    Page("/approvals", "approvals"),
    Page("/dead-letters", "letters"),
    Page("/dead-letters/{dlq_id}", "letter", listed=False),
    Page("/schedules", "schedules"),
    Page("/queues", "queues"),
    Page("/workers", "workers"),
    Page("/contracts", "contracts"),
    Page("/contracts/{name}", "contract", listed=False),
    Page("/verify", "verify"),
    Page("/alerts", "alerts"),
    Page("/audit", "audit", needs=Power.ADMIN),
    Page("/tokens", "tokens", needs=Power.ADMIN),
)
MENU = tuple(page for page in PAGES if page.listed)
_ANSWERS = {200: {"description": "a page", "content": {"text/html": {}}}}


def _serve(page: Page) -> None:
    async def handler(asked: ApiRequest) -> Response:
        viewer = viewer_of(asked)
        try:
            caller = await asked.web.people.caller(asked, "GET")
        except Unauthorized:
            return _to_sign_in(asked, viewer)
        menu = [one for one in MENU if caller.may(one.needs)]
        secret = asked.cookies.get(COOKIE)
        csrf = csrf_of(secret) if secret and caller is not LOCAL else ""
        allowed = caller.may(page.needs)
        return render("page.html", viewer, 200 if allowed else 403, **_told(caller, page, menu, csrf, allowed))

    router.route_for("GET", page.path, needs=None, answers=_ANSWERS, name=page.name)(handler)


def _told(caller: Caller, page: Page, menu: list[Page], csrf: str, allowed: bool) -> dict[str, object]:
    powers = " ".join(str(power) for power in Power if caller.may(power))
    return {
        "page": page,
        "menu": menu,
        "caller": caller,
        "powers": powers,
        "csrf": csrf,
        "allowed": allowed,
        "open": caller is LOCAL,
    }


def _to_sign_in(asked: ApiRequest, viewer: Viewer) -> Response:
    """Back to where they came from afterwards; the address is relative, so it stays under any prefix."""
    wanted = asked.url.path.removeprefix(asked.scope.get("root_path", "")).lstrip("/")
    query = f"?{asked.url.query}" if asked.url.query else ""
    target = asked.url.replace(path="", query="").include_query_params(next=wanted + query)
    return RedirectResponse(f"{viewer.root}sign-in?{target.query}", 303)


@router.route_for("GET", "/sign-in", needs=None, answers=_ANSWERS)
async def sign_in(asked: ApiRequest) -> Response:
    """Where a token is traded for a session."""
    return render("sign_in.html", viewer_of(asked), 200)


@router.route_for("GET", f"{PREFIX}/{{name:path}}", needs=None, answers=_ANSWERS)
async def static(name: str) -> Response:
    """A script, a style, a picture."""
    return asset(name)


for _page in PAGES:
    _serve(_page)


def install(app: FastAPI) -> None:
    """Add the pages and their files to an application."""
    for one in (*API, router):
        app.router.routes.extend(one.routes)


__all__ = ["API", "MENU", "PAGES", "Page", "depth_of", "install"]
