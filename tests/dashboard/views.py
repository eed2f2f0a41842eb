"""Everything the dashboard can show: each page with data and without, each dialog and menu.

Screenshots and the axe test use this list. A test compares it with the routes of the dashboard, so that a new page
cannot be forgotten.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from dashboard.crowd import fill_series, opened
from dashboard.site import Site, running_site, wait_until_drawn
from support.waiting import until_now

SETTINGS = """
[worker]
grace_seconds = 0
[alerts]
interval_seconds = 0.5
[alerts.rules.no_worker]
threshold = 0
for_seconds = 0
[alerts.rules.dlq_arrivals]
threshold = 1
"""
"""Alerts that fire at once, and a worker that stops at once although jobs run."""
Act = Callable[[Page], object]


def nothing(page: Page) -> None: ...


def clicks(*selectors: str) -> Act:
    """Click one after the other."""

    def act(page: Page) -> None:
        for selector in selectors:
            page.locator(selector).first.click()

    return act


def dialog(*selectors: str) -> Act:
    """Click one after the other, and wait for the dialog."""

    def act(page: Page) -> None:
        clicks(*selectors)(page)
        expect(page.locator("dialog[open]")).to_have_count(1)

    return act


@dataclass(frozen=True)
class View:
    """What is on the screen after `act` on the page at `path`.

    route: the path of the page as the application declares it. path: below the root, with the names of `Data.names`.
    is_main: one of the pages that is drawn at every width, theme and language.
    """

    name: str
    route: str
    path: str
    act: Act = nothing
    person: str = "boss"
    is_main: bool = False
    is_empty: bool = False
    """On a server without jobs."""


def _page(name: str, route: str, path: str | None = None, act: Act = nothing) -> View:
    return View(name, route, route.lstrip("/") if path is None else path, act, is_main=True)


def _open(name: str, route: str, act: Act, path: str | None = None, person: str = "boss") -> View:
    return View(name, route, route.lstrip("/") if path is None else path, act, person)


def _children(page: Page) -> None:
    expect(page.locator("#children tbody tr")).not_to_have_count(0)


def _payload_changes(page: Page) -> None:
    expect(page.locator("table.diff tbody tr")).to_have_count(1)


def _show_graph(page: Page) -> None:
    page.click("[data-shape=graph]")
    expect(page.locator(".graph a")).not_to_have_count(0)


def _show_comparison(page: Page) -> None:
    expect(page.locator("#logs .log")).to_contain_text("execution 2 begins")
    page.locator("#executions summary").first.click()
    page.locator("#compare summary").click()


def _type_in_palette(page: Page) -> None:
    page.click("#palette-button")
    page.keyboard.type("mail")
    expect(page.locator("#palette-options li").nth(1)).to_contain_text("mail")


def _keys(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_have_count(1)


def _narrow_menu(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 780})
    page.click("#menu-button")


def _type_in_filter(page: Page) -> None:
    page.locator("#filter").press_sequentially("sta")
    expect(page.locator("#filter-options li")).not_to_have_count(0)


def _invalid_filter(page: Page) -> None:
    page.fill("#filter", "since:yesterday")
    page.press("#filter", "Enter")
    expect(page.locator("#filter-error")).to_be_visible()


def _rejected_schedule(page: Page) -> None:
    dialog(".toolbar button.primary")(page)
    for name, value in {"name": "digest", "job_type": "nobody", "value": "not a cron line"}.items():
        page.fill(f"dialog [name={name}]", value)
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .error[role=status]:not(:empty)")).to_be_visible()


def _schedule_of(job_type: str) -> Act:
    """A new schedule whose payload has the fields of the job type."""

    def act(page: Page) -> None:
        dialog(".toolbar button.primary")(page)
        page.fill("dialog [name=job_type]", job_type)
        page.press("dialog [name=job_type]", "Tab")
        expect(page.locator("dialog [data-view=json]")).to_be_visible()

    return act


def _rejected_schedule_fields(page: Page) -> None:
    _schedule_of("purchase")(page)
    page.fill("dialog [name=name]", "monthly")
    page.fill("dialog [name=value]", "0 3 * * *")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog [aria-invalid=true]").first).to_be_visible()


def _new_webhook_secret(page: Page) -> None:
    dialog("tr:has-text('audit trail') [data-action=edit]")(page)
    page.check("dialog [name=new_secret]")
    page.click("dialog button[type=submit]")
    expect(page.locator("#secret")).to_be_visible()


def _new_token(page: Page) -> None:
    dialog(".toolbar button")(page)
    page.fill("dialog [name=name]", "night shift")
    page.click("dialog button[type=submit]")
    expect(page.locator("#secret")).to_be_visible()


def _verified(page: Page) -> None:
    page.click("[data-action=verify]")
    expect(page.locator("[data-action=verify]")).to_be_enabled()
    expect(page.locator("#verify-result")).not_to_be_empty()


def _purchase(page: Page) -> None:
    """All fields open, and the problems of some."""
    expect(page.locator("select.mode").first).to_be_visible()
    for mode in page.locator("select.mode").all():
        mode.select_option("value")
    page.locator("fieldset button.tiny").first.click()
    page.locator('[data-path="reference"]').fill("not JSON")
    page.select_option("#option-scheduled_at", "delay")
    page.click("form.enqueue button[type=submit]")
    expect(page.locator("[aria-invalid=true]").first).to_be_visible()


def _resumed_queue(page: Page) -> None:
    page.locator("tr[data-key=billing] [data-action=resume]").click()
    expect(page.locator(".toast")).to_have_count(1)
    page.locator("tr[data-key=billing] [data-action=pause]").click()
    page.click("dialog button[type=submit]")
    expect(page.locator(".toast")).to_have_count(2)


PAGES_WITH_DATA = (
    _page("overview", "/"),
    _page("jobs", "/jobs"),
    _page("job_failed", "/jobs/{job_id}", "jobs/{failed}"),
    _page("job_running", "/jobs/{job_id}", "jobs/{running}", _show_comparison),
    _page("job_workflow", "/jobs/{job_id}", "jobs/{workflow}", _children),
    _page("job_graph", "/jobs/{job_id}", "jobs/{workflow}", _show_graph),
    _page("job_requeued", "/jobs/{job_id}", "jobs/{requeued}", _payload_changes),
    _page("job_unserved", "/jobs/{job_id}", "jobs/{unserved}"),
    _page("approvals", "/approvals"),
    _page("dead_letters", "/dead-letters"),
    _page("dead_letters_list", "/dead-letters", "dead-letters?view=list&status=all"),
    _page("dead_letter", "/dead-letters/{dlq_id}", "dead-letters/{dead_letter}"),
    _page("schedules", "/schedules"),
    _page("queues", "/queues"),
    _page("queue", "/queue", "queue?name=gates"),
    _page("job_types", "/types"),
    _page("job_type", "/type", "type?name=mail"),
    _page("workers", "/workers"),
    _page("worker", "/worker", "worker?name={worker}"),
    _page("enqueue", "/enqueue", "enqueue?name=purchase"),
    _page("contracts", "/contracts"),
    _page("contract", "/contracts/{name}", "contracts/gate-b2"),
    _page("verify", "/verify"),
    _page("alerts", "/alerts"),
    _page("webhooks", "/webhooks"),
    _page("audit", "/audit"),
    _page("tokens", "/tokens"),
    _page("sign_in", "/sign-in"),
    _page("docs", "/docs"),
)
OPENED = (
    _open("palette", "/", dialog("#palette-button")),
    _open("palette_results", "/", _type_in_palette),
    _open("keys", "/", _keys),
    _open("user_menu", "/", clicks(".user-menu summary")),
    _open("rotate_token", "/", dialog(".user-menu summary", "#rotate-token")),
    _open("filter_options", "/jobs", _type_in_filter),
    _open("filter_invalid", "/jobs", _invalid_filter),
    _open("columns", "/jobs", clicks("#columns summary")),
    _open("saved_views", "/jobs", clicks("#saved-views summary")),
    _open("save_view", "/jobs", dialog("#saved-views summary", "#save-view")),
    _open("export", "/jobs", clicks("#export summary")),
    _open("jobs_no_match", "/jobs", nothing, "jobs?q=nothing-like-this"),
    _open("jobs_invalid_address", "/jobs", nothing, "jobs?q=since:yesterday%20queue:mail"),
    _open("jobs_cancel", "/jobs", dialog(".selection .danger"), "jobs?q=queue:orders%20phase:blocked"),
    _open("job_large", "/jobs/{job_id}", nothing, "jobs/{large}"),
    _open("job_large_requeued", "/jobs/{job_id}", nothing, "jobs/{large_requeued}"),
    _open("job_crashed", "/jobs/{job_id}", clicks("#job-error summary"), "jobs/{crashed}"),
    _open("job_without_steps", "/jobs/{job_id}", clicks("#compare summary"), "jobs/{snoozed}"),
    _open("requeue_large", "/jobs/{job_id}", dialog("[data-action=requeue]"), "jobs/{large}"),
    _open("signal", "/jobs/{job_id}", dialog("[data-action=signal]"), "jobs/{waiting}"),
    _open("cancel", "/jobs/{job_id}", dialog("[data-action=cancel]"), "jobs/{waiting}"),
    _open("requeue_job", "/jobs/{job_id}", dialog("[data-action=requeue]"), "jobs/{failed}"),
    _open("enqueue_without_type", "/enqueue", nothing),
    _open("approve", "/approvals", dialog("[data-action=approve]")),
    _open("reject", "/approvals", dialog("[data-action=reject]")),
    _open("requeue_group", "/dead-letters", dialog("[data-action=requeue-group]")),
    _open("discard_group", "/dead-letters", dialog("[data-action=discard-group]")),
    _open("dead_letters_all", "/dead-letters", nothing, "dead-letters?status=all"),
    _open("dead_letters_no_match", "/dead-letters", nothing, "dead-letters?q=type:nobody"),
    _open("dead_letter_not_found", "/dead-letters/{dlq_id}", nothing, "dead-letters/nobody"),
    _open("requeue", "/dead-letters/{dlq_id}", dialog("[data-action=requeue]"), "dead-letters/{dead_letter}"),
    _open("discard", "/dead-letters/{dlq_id}", dialog("[data-action=discard]"), "dead-letters/{dead_letter}"),
    _open("proposed", "/dead-letters/{dlq_id}", nothing, "dead-letters/{proposed}"),
    _open("schedule_add", "/schedules", dialog(".toolbar button.primary")),
    _open("schedule_rejected", "/schedules", _rejected_schedule),
    _open("schedule_fields", "/schedules", _schedule_of("purchase")),
    _open("schedule_fields_rejected", "/schedules", _rejected_schedule_fields),
    _open("schedule_edit", "/schedules", dialog("[data-action=edit]")),
    _open("schedule_run_now", "/schedules", dialog("[data-action=run-now]")),
    _open("schedule_pause", "/schedules", dialog("[data-action=pause]")),
    _open("schedule_backfill", "/schedules", dialog("[data-action=backfill]")),
    _open("schedule_remove", "/schedules", dialog("[data-action=remove]")),
    _open("schedule_runs", "/schedules", dialog("td button.plain")),
    _open("queue_not_found", "/queue", nothing, "queue?name=nobody"),
    _open("job_type_not_found", "/type", nothing, "type?name=nobody"),
    _open("contract_not_found", "/contracts/{name}", nothing, "contracts/nobody"),
    _open("queue_pause", "/queues", dialog("[data-action=pause]")),
    _open("queue_pause_any", "/queues", dialog(".toolbar .row button")),
    _open("queue_toasts", "/queues", _resumed_queue),
    _open("limit_add", "/queues", dialog("[data-action=limit]")),
    _open("limit_remove", "/queues", dialog("[data-action=remove-limit]")),
    _open("worker_drain", "/workers", dialog("[data-action=drain]")),
    _open("worker_gone", "/worker", nothing, "worker?name=gone"),
    _open("enqueue_filled_in", "/enqueue", _purchase, "enqueue?name=purchase"),
    _open("enqueue_json", "/enqueue", clicks("[data-view=json]"), "enqueue?name=purchase"),
    _open("enqueue_undeclared", "/enqueue", nothing, "enqueue?name=unheard-of"),
    _open("worker_stop", "/workers", dialog("[data-action=stop]")),
    _open("verified", "/verify", _verified),
    _open("alert_silence", "/alerts", dialog("[data-action=silence]")),
    _open("webhook_add", "/webhooks", dialog(".toolbar button.primary")),
    _open("webhook_deliveries", "/webhooks", dialog("tr:has-text('billing system') .actions button")),
    _open("webhook_edit", "/webhooks", dialog("[data-action=edit]")),
    _open("webhook_secret", "/webhooks", _new_webhook_secret),
    _open("webhook_remove", "/webhooks", dialog("[data-action=remove]")),
    _open("token_add", "/tokens", dialog(".toolbar button")),
    _open("token_secret", "/tokens", _new_token),
    _open("token_revoke", "/tokens", dialog("tr:has-text('vic') .danger")),
    _open("docs_open", "/docs", clicks("summary:has-text('/api/v1/jobs/{job_id}/cancel')")),
    _open("not_found", "/jobs/{job_id}", nothing, "jobs/00000000-0000-7000-8000-000000000000"),
    _open("page_not_found", "/jobs", nothing, "no-such-page"),
    _open("forbidden", "/tokens", nothing, person="vic"),
    _open("viewer", "/queues", nothing, person="vic"),
    _open("tenant", "/", nothing, person="tina"),
    # Another person, so that the page whose size it changes is not used for other views.
    _open("narrow_menu", "/", _narrow_menu, person="ana"),
    _open("without_payloads", "/jobs/{job_id}", nothing, "jobs/{failed}", person="blind"),
)
EMPTY = tuple(
    View(f"{view.name}_empty", view.route, view.path, person=view.person, is_empty=True)
    for view in PAGES_WITH_DATA
    if "{" not in view.path and view.route not in ("/sign-in", "/docs", "/contracts", "/contracts/{name}")
)
VIEWS = (*PAGES_WITH_DATA, *OPENED, *EMPTY)


@dataclass(frozen=True)
class Data:
    """A server with jobs in every status, and one without jobs. names: what stands in the paths of the views."""

    full: Site
    empty: Site
    names: dict[str, str] = field(default_factory=dict)

    def show(self, page: Page, view: View) -> None:
        """Open the view in a page of its server."""
        site = self.empty if view.is_empty else self.full
        page.goto(f"{site.root_url}/{view.path.format(**self.names)}")
        wait_until_drawn(page)
        if page.locator("#connection").count():
            expect(page.locator("body[data-connection=live]")).to_have_count(1)
        view.act(page)

    def sites(self) -> tuple[Site, Site]:
        return self.full, self.empty


@contextmanager
def sites_with_data(folder: Path, browser: Browser) -> Iterator[Data]:
    folders = folder / "full", folder / "empty"
    for one in folders:
        one.mkdir()
        (one / "detent.toml").write_text(SETTINGS)
    with running_site(folders[0], browser) as full, running_site(folders[1], browser) as empty:
        yield Data(full, empty, add_data(full))


def add_data(site: Site) -> dict[str, str]:
    """Jobs in every status, schedules, limits, pauses, alerts, webhooks; returns the names in the paths of views."""
    for number in range(12):
        site.submit("mail", {"to": f"user{number}@example.org"}, queue="mail", tenant_id="ab"[number % 2])
    names = {
        "waiting": site.submit("order", {"number": 7}, queue="orders"),
        "running": site.submit(
            "import", {"gate": str(site.folder / "never"), "rows": 12, "total": 36}, queue="imports"
        ),
        "workflow": site.submit("fan-out", {"parts": 60}, queue="imports"),
        "unserved": site.submit("shipping", {"number": 7}, queue="billing", tenant_id="a"),
    }
    site.submit("release", {"version": "1.4"}, queue="orders")
    site.submit("count", {"gate": str(site.folder / "never")}, queue="gates")
    site.submit("mail", {"to": "held@example.org"}, queue="mail", hold=True)
    names["worker"] = site.call("GET", "workers")["items"][0]["id"]
    _add_dead_letters(site, names)
    _add_large_and_crashed(site, names)
    _add_schedules_and_limits(site)
    _add_webhooks(site)
    site.call("POST", "verification", {})
    children = f"jobs/{names['workflow']}/detail"
    until_now(lambda: sum(row["count"] for row in site.call("GET", children)["children"]["counts"]) == 60)
    until_now(lambda: any(alert["state"] == "firing" for alert in site.call("GET", "alerts")["items"]))
    alert = site.call("GET", "alerts")["items"][-1]
    site.call("POST", "alerts/acknowledge", {"rule": alert["rule"], "subject": alert["subject"]}, person="ana")
    site.call("POST", "alerts/silences", {"rule": "backlog_age", "seconds": 3600, "reason": "stock-taking"})
    with opened(site.database_url) as database:
        fill_series(database)
    return names


def _add_dead_letters(site: Site, names: dict[str, str]) -> None:
    dead_letter = site.create_dead_letter()
    names |= {"dead_letter": dead_letter, "failed": site.call("GET", f"dlq/items/{dead_letter}")["job_id"]}
    requeued = site.create_dead_letter("second")
    changed = site.call("POST", f"dlq/items/{requeued}/requeue", {"payload": {"card": "third"}})
    names["requeued"] = site.wait_until_final(changed["job"]["id"])["id"]
    names["proposed"] = site.create_dead_letter("proposed")
    site.call("POST", f"dlq/items/{names['proposed']}/discard", {"reason": "a test card"}, person="ana")


def _add_large_and_crashed(site: Site, names: dict[str, str]) -> None:
    text = "".join(f"line {number} of the report\n" for number in range(40_000))[:1_000_000]
    names["large"] = site.wait_until_final(site.submit("mail", {"to": text}, queue="mail"))["id"]
    changed = {"to": text.replace("line 30000", "line thirty thousand")}
    requeued = site.call("POST", f"jobs/{names['large']}/requeue", {"payload": changed})
    names["large_requeued"] = site.wait_until_final(requeued["job"]["id"])["id"]
    names["crashed"] = site.wait_until_final(site.submit("crash", {"file": "orders.csv"}, queue="imports"))["id"]
    names["snoozed"] = site.wait_until_final(site.submit("snoozes", {"times": 2}, queue="imports"))["id"]


def _add_schedules_and_limits(site: Site) -> None:
    nightly = {"name": "nightly", "job_type": "mail", "cron": "0 3 * * *", "tz": "Europe/Berlin"}
    site.call("POST", "schedules", {**nightly, "payload": {"to": "all"}})
    site.call(
        "POST",
        "schedules",
        {"name": "report", "job_type": "mail", "every": "90m", "tenant_id": "a", "payload": {"to": "all"}},
    )
    site.call("POST", "schedules/report/pause", {"reason": "holidays"})
    site.call("PUT", "limits", {"queue": "mail", "concurrency": 8})
    site.call("PUT", "limits", {"per": "tenant", "rate": 50})
    site.call("POST", "queues/billing/pause", {"reason": "the bank is closed"})
    site.call("POST", "queues/b/pause?kind=tenant", {"reason": "the contract has ended"})


def _add_webhooks(site: Site) -> None:
    site.call("POST", "webhooks", {"name": "billing system", "url": "http://127.0.0.1:9/hook", "phases": ["final"]})
    site.call("POST", "webhooks", {"name": "audit trail", "url": "http://127.0.0.1:9/audit", "queue": "orders"})
    site.call("POST", "webhooks/audit%20trail/pause", {})
    site.wait_until_final(site.submit("mail", {"to": "webhook"}, queue="mail"))
    delivered = "webhooks/billing%20system/deliveries"
    until_now(lambda: any(row["attempts"] for row in site.call("GET", delivered)["items"]))
