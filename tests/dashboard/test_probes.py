"""Markup in every field a job can carry stays text on every page."""

from playwright.sync_api import Page, expect

from dashboard.site import Site

PROBE = '"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}'
SHORT = "<img src=x onerror=window.pwned=1>"
FOUND = """() => ({
  ran: window.pwned ?? null,
  images: document.querySelectorAll('img[src="x"]').length,
  scripts: [...document.scripts].filter((one) => !one.src && one.type !== "application/json").length,
  shown: document.body.innerText.includes("onerror="),
})"""


def clean(page: Page, *, shown: bool) -> None:
    found = page.evaluate(FOUND)
    assert (found["ran"], found["images"], found["scripts"]) == (None, 0, 0), page.url
    assert found["shown"] or not shown, f"the probe should be read as text on {page.url}"
    assert page.troubles == []  # type: ignore[attr-defined]


def test_probes_stay_text(here: Site) -> None:
    worker = f"w{SHORT}"
    names = {"queue": f"q{SHORT}", "tenant_id": f"t{SHORT}"}
    more = {"idempotency_key": f"k{SHORT}", "trace_id": f"r{SHORT}", "max_retries": 0}
    kind = f"type{SHORT}"
    failed = here.submit(kind, {SHORT: [PROBE]}, **names, **more)
    claim = {"worker": worker, "job_types": [kind], "limit": 1}
    [claimed] = here.call("POST", "worker/claim", claim)["jobs"]
    failure = {"code": SHORT, "message": PROBE, "retryable": False}
    settle = {"job_id": failed, "token": claimed["token"], "outcome": "fail", **failure}
    here.call("POST", "worker/settle", settle)
    held = here.submit(kind, {SHORT: PROBE}, hold=True, **names)
    here.submit(kind, {SHORT: PROBE}, **names)
    here.call("POST", "queues/probe-queue%3Cimg%20src=x%20onerror=window.pwned=1%3E/pause", {"reason": PROBE})
    plan = {"name": f"s{SHORT}", "job_type": kind, "every": "1h", "payload": {SHORT: PROBE}}
    here.call("POST", "schedules", plan)
    dead_letter = here.call("GET", f"jobs/{failed}")["dlq_id"]
    assert dead_letter
    page = here.signed_in("boss", f"jobs/{failed}")
    for details in page.locator("details:not(.who)").all():
        details.evaluate("node => { node.open = true; }")
    expect(page.locator("h1")).to_have_text(kind)
    for text in (worker, SHORT, names["queue"], names["tenant_id"], more["idempotency_key"]):
        expect(page.locator("#page")).to_contain_text(text)
    clean(page, shown=True)
    for path in (
        "",
        "jobs",
        f"jobs/{held}",
        "approvals",
        "dead-letters",
        f"dead-letters/{dead_letter}",
        "schedules",
        "queues",
        "audit",
    ):
        here.open(page, path)
        clean(page, shown=True)
    for path in ("workers", "alerts", "tokens", "verify", "contracts"):
        here.open(page, path)
        clean(page, shown=False)


def test_a_step_with_markup_in_its_name(here: Site) -> None:
    door = here.folder / "open-door"
    door.touch()
    job = here.ended(here.submit("gated", {"door": str(door)}, queue="gates"))["id"]
    page = here.signed_in("boss", f"jobs/{job}")
    expect(page.locator("#page")).to_contain_text("first <b>step</b>")
    assert page.locator("#page b").count() == 0


def test_the_policy_lets_no_script_in_and_nothing_be_framed(here: Site) -> None:
    page = here.signed_in("vic", "jobs")
    answer = page.goto(f"{here.at}/jobs")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy and "script-src 'self'" in policy and "style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
    refused = page.evaluate(
        """() => { const box = document.createElement("div");
          try { box.innerHTML = "<img src=x onerror=window.pwned=1>"; return "let in"; }
          catch (error) { return "refused"; } }"""
    )
    assert refused == "refused", "markup from text is impossible on these pages, whoever writes the next one"


def test_signing_in_leads_nowhere_else(here: Site) -> None:
    page = here.context().new_page()
    for next_page in ("https://example.org/", "//example.org/x", "javascript:window.pwned=1", "/\\\\example.org"):
        page.goto(f"{here.at}/sign-in")
        page.evaluate("next => history.replaceState(null, '', '?next=' + encodeURIComponent(next))", next_page)
        page.fill("#token", here.tokens["vic"])
        page.press("#token", "Enter")
        page.wait_for_url(lambda url: "/sign-in" not in url)
        assert page.url.startswith(here.at) and page.evaluate("window.pwned") is None
