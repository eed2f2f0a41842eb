"""HTML markup in any field of a job is shown as text on every page."""

import pytest
from playwright.sync_api import Page, expect

from dashboard.site import Site

MARKUP = '"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}'
TAG = "<img src=x onerror=window.pwned=1>"
INSPECT = """() => ({
  ran: window.pwned ?? null,
  images: document.querySelectorAll('img[src="x"]').length,
  scripts: [...document.scripts].filter((script) => !script.src && script.type !== "application/json").length,
  shown: document.body.innerText.includes("onerror="),
})"""


def assert_inert(page: Page, *, shown: bool) -> None:
    """No markup was parsed; `shown`: it is visible as text."""
    state = page.evaluate(INSPECT)
    assert (state["ran"], state["images"], state["scripts"]) == (None, 0, 0), page.url
    assert state["shown"] or not shown, f"the markup should be visible as text on {page.url}"
    assert page.script_errors == []  # type: ignore[attr-defined]


@pytest.mark.long
def test_markup_is_shown_as_text(site: Site) -> None:
    worker = f"w{TAG}"
    names = {"queue": f"q{TAG}", "tenant_id": f"t{TAG}"}
    fields = {"idempotency_key": f"k{TAG}", "trace_id": f"r{TAG}", "max_retries": 0}
    job_type = f"type{TAG}"
    failed = site.submit(job_type, {TAG: [MARKUP]}, **names, **fields)
    claim = {"worker": worker, "job_types": [job_type], "limit": 1}
    [claimed] = site.call("POST", "worker/claim", claim)["jobs"]
    failure = {"code": TAG, "message": MARKUP, "retryable": False}
    settle = {"job_id": failed, "token": claimed["token"], "outcome": "fail", **failure}
    site.call("POST", "worker/settle", settle)
    held = site.submit(job_type, {TAG: MARKUP}, hold=True, **names)
    site.submit(job_type, {TAG: MARKUP}, **names)
    site.call("POST", "queues/markup-queue%3Cimg%20src=x%20onerror=window.pwned=1%3E/pause", {"reason": MARKUP})
    schedule = {"name": f"s{TAG}", "job_type": job_type, "every": "1h", "payload": {TAG: MARKUP}}
    site.call("POST", "schedules", schedule)
    dead_letter = site.call("GET", f"jobs/{failed}")["dlq_id"]
    assert dead_letter
    page = site.sign_in("boss", f"jobs/{failed}")
    for details in page.locator("details:not(.user-menu)").all():
        details.evaluate("node => { node.open = true; }")
    expect(page.locator("h1")).to_have_text(job_type)
    for text in (worker, TAG, names["queue"], names["tenant_id"], fields["idempotency_key"]):
        expect(page.locator("#page")).to_contain_text(text)
    assert_inert(page, shown=True)
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
        site.open(page, path)
        assert_inert(page, shown=True)
    for path in ("workers", "alerts", "tokens", "verify", "contracts"):
        site.open(page, path)
        assert_inert(page, shown=False)


def test_a_step_with_markup_in_its_name(site: Site) -> None:
    gate = site.folder / "open-gate"
    gate.touch()
    job = site.wait_until_final(site.submit("gated", {"gate": str(gate)}, queue="gates"))["id"]
    page = site.sign_in("boss", f"jobs/{job}")
    expect(page.locator("#page")).to_contain_text("first <b>step</b>")
    assert page.locator("#page b").count() == 0


def test_the_policy_blocks_inline_scripts_and_framing(site: Site) -> None:
    page = site.sign_in("vic", "jobs")
    response = page.goto(f"{site.root_url}/jobs")
    assert response is not None
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy and "script-src 'self'" in policy and "style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
    result = page.evaluate(
        """() => { const box = document.createElement("div");
          try { box.innerHTML = "<img src=x onerror=window.pwned=1>"; return "accepted"; }
          catch (error) { return "refused"; } }"""
    )
    assert result == "refused", "the policy must prevent that any script creates markup from text"


def test_sign_in_does_not_redirect_to_another_site(site: Site) -> None:
    page = site.new_context().new_page()
    for next_page in ("https://example.org/", "//example.org/x", "javascript:window.pwned=1", "/\\\\example.org"):
        page.goto(f"{site.root_url}/sign-in")
        page.evaluate("next => history.replaceState(null, '', '?next=' + encodeURIComponent(next))", next_page)
        page.fill("#token", site.tokens["vic"])
        page.press("#token", "Enter")
        page.wait_for_url(lambda url: "/sign-in" not in url)
        assert page.url.startswith(site.root_url) and page.evaluate("window.pwned") is None
