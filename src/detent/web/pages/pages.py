"""The dashboard: HTML pages without data; their scripts load everything from the REST API."""

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from detent.core.access import Power
from detent.engine.control.access import Forbidden, Unauthorized
from detent.web.http.authentication import LOCAL, Caller
from detent.web.http.route import HTML_PAGE, ApiRequest, Router, expiry_to_announce

from .shell import PREFIX, Viewer, asset, render, viewer_of

router = Router("", tags=["pages"], include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    name: selects its texts and its script; listed: whether it is in the menu. shared: it shows what tenants share, so
    it is not for tokens that are limited to a tenant, queues or types. all_queues: it is not for the latter.
    """

    path: str
    name: str
    needs: Power = Power.READ
    listed: bool = True
    shared: bool = False
    all_queues: bool = False
    folder: str = ""
    """Below the scripts of the pages, with a slash at the end."""

    def is_for_role(self, caller: Caller) -> bool:
        """Pages are for people, who may read."""
        return caller.may(self.needs) and caller.may(Power.READ)

    def allows(self, caller: Caller) -> bool:
        if caller.reach.is_limited and (self.shared or self.all_queues):
            return False
        return self.is_for_role(caller) and not (self.shared and caller.tenant is not None)


PAGES = (
    Page("/", "overview", all_queues=True),
    Page("/jobs", "jobs"),
    Page("/jobs/{job_id}", "job", listed=False),
    Page("/enqueue", "enqueue", needs=Power.SUBMIT, listed=False, folder="enqueue/"),
    Page("/approvals", "approvals"),
    Page("/dead-letters", "dead_letters"),
    Page("/dead-letters/{dlq_id}", "dead_letter", listed=False),
    Page("/schedules", "schedules"),
    Page("/queues", "queues", shared=True),
    Page("/queue", "queue", listed=False, shared=True, folder="queues/"),
    Page("/types", "job_types", shared=True, folder="queues/"),
    Page("/type", "job_type", listed=False, shared=True, folder="queues/"),
    Page("/workers", "workers", shared=True),
    Page("/worker", "worker", listed=False, shared=True, folder="workers/"),
    Page("/contracts", "contracts"),
    Page("/contracts/{name}", "contract", listed=False),
    Page("/verify", "verify", shared=True),
    Page("/alerts", "alerts", shared=True),
    Page("/webhooks", "webhooks", needs=Power.OPERATE, all_queues=True, folder="alerts/"),
    Page("/audit", "audit", needs=Power.ADMIN),
    Page("/tokens", "tokens", needs=Power.ADMIN),
)
MENU = tuple(page for page in PAGES if page.listed)


NOT_FOUND = Page("", "not_found", listed=False)


async def show_page(request: ApiRequest, page: Page) -> Response:
    """The page, or the reason why the caller may not open it, or that there is no page at this address."""
    viewer = viewer_of(request)
    try:
        caller = await request.web.authenticator.authenticate(request, "GET", page=True)
    except Unauthorized:
        return _to_sign_in(request, viewer)
    allowed, exists = page.allows(caller), page is not NOT_FOUND
    if page.path == "/" and not allowed and page.is_for_role(caller):
        return RedirectResponse(f"{viewer.root}jobs", 303)  # the first page of people without an overview
    forbidden = "state.forbidden.shared" if page.is_for_role(caller) else "state.forbidden"
    return render(
        "page.html",
        viewer,
        404 if not exists else 200 if allowed else 403,
        page=page,
        menu=[entry for entry in MENU if entry.allows(caller)],
        caller=caller,
        powers=" ".join(str(power) for power in Power if caller.may(power)),
        sign_out_url=request.web.settings.proxy_sign_out_url,
        allowed=allowed and exists,
        refusal=forbidden if exists else "state.no-page",
        open=caller is LOCAL,
        docs=request.web.settings.docs != "off",
        expires=expiry_to_announce(caller, (await request.web.engine()).store.now()),
    )


def _add_route(page: Page) -> None:
    async def handler(request: ApiRequest) -> Response:
        return await show_page(request, page)

    router.route_for("GET", page.path, None, responses={200: HTML_PAGE}, name=page.name)(handler)


def _to_sign_in(request: ApiRequest, viewer: Viewer) -> Response:
    """Redirect to the sign-in page, which returns to this page. Relative URLs, so that any mount prefix works."""
    page_path = request.url.path.removeprefix(request.scope.get("root_path", "")).lstrip("/")
    query = f"?{request.url.query}" if request.url.query else ""
    target = request.url.replace(path="", query="").include_query_params(next=page_path + query)
    return RedirectResponse(f"{viewer.root}sign-in?{target.query}", 303)


@router.route_for("GET", "/sign-in", None, responses={200: HTML_PAGE})
async def sign_in(request: ApiRequest) -> Response:
    """The page that exchanges a token for a session, or finds the key of one in another tab; or the application's."""
    if sign_in_url := request.web.settings.sign_in_url:
        page = f"{request.scope.get('root_path', '')}/{request.query_params.get('next', '').lstrip('/')}"
        return RedirectResponse(f"{sign_in_url}{'&' if '?' in sign_in_url else '?'}{urlencode({'next': page})}", 303)
    session = ""
    with suppress(Unauthorized, Forbidden):
        session = (await request.web.authenticator.authenticate(request, "GET", page=True)).session
    return render("sign_in.html", viewer_of(request), 200, session=session)


@router.route_for("GET", f"{PREFIX}/{{name:path}}", None, responses={200: HTML_PAGE})
async def static(name: str) -> Response:
    """A static file: script, style sheet or image."""
    return asset(name)


for _page in PAGES:
    _add_route(_page)
