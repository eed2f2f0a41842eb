"""Everyday tasks in a browser against a server with a worker."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from dashboard.handlers import app
from dashboard.site import Site, assert_no_errors, status_badge, wait_until_drawn


def test_signing_in_and_out(site: Site) -> None:
    page = site.new_context().new_page()
    page.goto(f"{site.root_url}/jobs?q=queue:mail")
    assert "/sign-in?next=" in page.url
    page.fill("#token", "detent_wrong")
    page.press("#token", "Enter")
    expect(page.locator("#sign-in-error")).to_contain_text("Not signed in")
    page.fill("#token", site.tokens["ana"])
    page.click("button[type=submit]")
    page.wait_for_url(f"{site.root_url}/jobs?q=queue:mail")
    cookie = next(cookie for cookie in page.context.cookies() if cookie["name"] == "detent_session")
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    page.click(".user-menu summary")
    page.click("#sign-out")
    page.wait_for_url(f"{site.root_url}/sign-in")
    page.goto(f"{site.root_url}/jobs")
    assert "/sign-in?next=jobs" in page.url


def test_filter_with_completion_is_kept_in_the_address(site: Site) -> None:
    mails = [site.wait_until_final(site.submit("mail", {"to": f"user{n}"}, queue="mail"))["id"] for n in range(3)]
    other = site.create_dead_letter()
    page = site.sign_in("ana", "jobs")
    page.locator("#filter").press_sequentially("que")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#filter")).to_have_value("queue:")
    page.locator("#filter").press_sequentially("ma")
    expect(page.locator("#filter-options li")).to_have_text(["queue:mail"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#filter")).to_have_value("queue:mail ")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page).to_have_url(re.compile("q=queue%3Amail"))
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(3)
    assert {row.get_attribute("data-key") for row in page.locator("tbody tr").all()} == set(mails)
    page.fill("#filter", "since:yesterday")
    page.press("#filter", "Enter")
    expect(page.locator("#filter-error")).to_contain_text("since:yesterday")
    page.fill("#filter", "type:charge phase:final")
    expect(page.locator("tbody tr").first).to_contain_text("charge")
    assert other not in page.content(), "the filter must not match ids of dead letters"
    assert_no_errors(page)


def test_the_job_page_has_the_names_of_the_contract(site: Site) -> None:
    run = site.submit("without-a-handler", contract="p3c")
    page = site.sign_in("ana", f"jobs/{run}")
    details = page.locator("dl").filter(has_text="run_status")
    for name, value in (("run_id", run), ("run_status", "queued"), ("attempt", "1")):
        expect(details.locator(f"dt:has(code:text-is('{name}')) + dd")).to_have_text(value)
    assert_no_errors(page)


def test_a_running_job_finishes_without_reloading_the_page(site: Site) -> None:
    gate = site.folder / "gate"
    job = site.submit("gated", {"gate": str(gate)}, queue="gates")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(status_badge(page)).to_have_text("running")
    expect(page.locator(".diagram .node.current")).to_have_attribute("data-status", "running")
    expect(page.locator(".diagram .edge.next")).not_to_have_count(0)
    page.evaluate("window.marked = true")
    gate.touch()
    expect(status_badge(page)).to_have_text("succeeded")
    assert page.evaluate("window.marked"), "the page was reloaded"
    expect(page.locator(".diagram .node.current")).to_have_attribute("data-status", "succeeded")
    expect(page.locator(".diagram .edge.next")).to_have_count(0)
    assert page.locator(".timeline > li:not(.note)").count() >= 3
    expect(page.locator("#page")).to_contain_text("first <b>step</b>")
    expect(page.locator("[data-action]")).to_have_count(1)
    page.locator("input[type=range]").fill("1")
    expect(page.locator(".diagram .node.current")).to_have_attribute("data-status", "queued")
    page.click("#page >> text=Verify")
    expect(page.locator("#integrity-result")).to_contain_text("Passed")
    assert_no_errors(page)


def test_an_event_before_the_stream_is_connected_is_shown(site: Site) -> None:
    gate = site.folder / "early-gate"
    job = site.submit("gated", {"gate": str(gate)}, queue="gates")
    page = site.sign_in("ana", "contracts")
    held_requests: list[Route] = []
    page.route("**/events/stream*", lambda route: held_requests.append(route))
    site.open(page, f"jobs/{job}")
    expect(status_badge(page)).to_have_text("running")
    gate.touch()
    site.wait_until_final(job)
    held_requests[0].continue_()
    expect(status_badge(page)).to_have_text("succeeded", timeout=8_000)  # before the next poll
    assert_no_errors(page)


def test_the_stream_of_a_restored_database_begins_anew(site: Site) -> None:
    """The page knows an id that the log does not have; it would be refused for ever."""
    page = site.sign_in("ana", "contracts")
    ids: list[str | None] = []

    def answer(route: Route) -> None:
        ids.append(route.request.headers.get("last-event-id"))
        if len(ids) > 1:
            route.continue_()
        else:
            route.fulfill(content_type="text/event-stream", body=f"id: {'9' * 18}\n: beat\n\n")

    page.route("**/events/stream*", answer)
    with page.expect_response(lambda response: "/events/stream" in response.url and len(ids) == 3) as connected:
        site.open(page, "jobs")
    assert ids == [None, "9" * 18, None] and connected.value.status == 200


def test_sending_a_signal_to_a_waiting_job(site: Site) -> None:
    job = site.submit("order", {"number": 7}, queue="orders")
    page = site.sign_in("ana", f"jobs/{job}")
    expect(page.locator("#why")).to_contain_text("confirmed")
    page.click("[data-action=signal]")
    expect(page.locator("dialog input[name=name]")).to_have_value("confirmed")
    page.fill("dialog textarea.json", '{"by": ')
    expect(page.locator("dialog .field .error")).not_to_be_empty()
    page.fill("dialog textarea.json", '{"by": "ana"}')
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(0)
    expect(status_badge(page)).to_have_text("succeeded")
    assert site.call("GET", f"jobs/{job}")["result"] == {"number": 7, "by": "ana"}
    assert_no_errors(page)


def test_approving_and_rejecting_on_the_approvals_page(site: Site) -> None:
    approved = site.submit("mail", {"to": "yes"}, queue="mail", hold=True)
    rejected = site.submit("mail", {"to": "no"}, queue="mail", hold=True)
    page = site.sign_in("rui", "approvals")
    page.click(f"[data-key^='{approved}'] [data-action=approve]")
    page.click("dialog button[type=submit]")
    expect(page.locator(f"[data-key^='{approved}']")).to_have_count(0)
    page.click(f"[data-key^='{rejected}'] [data-action=reject]")
    page.fill("dialog textarea[name=reason]", "not today")
    page.click("dialog button[type=submit]")
    expect(page.locator(f"[data-key^='{rejected}']")).to_have_count(0)
    assert site.wait_until_final(approved)["result"] == {"sent_to": "yes"}
    assert site.wait_until_final(rejected)["error_code"] == "APPROVAL_REJECTED"
    operator_page = site.sign_in("ana", "approvals")
    expect(operator_page.locator("[data-action]")).to_have_count(0)
    assert_no_errors(page, operator_page)


def test_approving_on_the_job_page_sends_the_digest_of_the_question(site: Site) -> None:
    job = site.submit("release", {"version": "7"}, queue="orders")
    page = site.sign_in("rui", f"jobs/{job}")
    page.click("[data-action=approve]")
    with page.expect_request(f"**/jobs/{job}/approve") as request:
        page.click("dialog button[type=submit]")
    expect(status_badge(page)).to_have_text("succeeded")
    (approval,) = site.call("GET", f"jobs/{job}/detail")["approvals"]
    assert request.value.post_data_json["digest"] == approval["digest"] and approval["votes"][0]["person"] == "rui"
    assert_no_errors(page)


@pytest.mark.long
def test_two_people_discard_a_dead_letter(site: Site) -> None:
    dead_letter = site.create_dead_letter()
    ana, ben = (
        site.sign_in("ana", f"dead-letters/{dead_letter}"),
        site.sign_in("ben", f"dead-letters/{dead_letter}"),
    )
    ana.click("[data-action=discard]")
    expect(ana.locator("dialog p").first).to_have_text("You propose it; it is discarded when another person confirms.")
    ana.fill("dialog textarea[name=reason]", "a test card")
    ana.click("dialog button[type=submit]")
    expect(ana.locator("[data-action=discard]")).to_be_disabled()
    assert site.call("GET", f"dlq/items/{dead_letter}")["status"] == "open", "one person is not enough"
    expect(ben.locator("[data-action=discard]")).to_have_text("Confirm discard")
    ben.click("[data-action=discard]")
    expect(ben.locator("dialog p").first).to_have_text("It is discarded at once. This cannot be undone.")
    expect(ben.locator("dialog")).to_contain_text("ana proposed to discard it: a test card")
    ben.fill("dialog textarea[name=reason]", "agreed")
    ben.click("dialog button[type=submit]")
    for page in (ana, ben):
        expect(status_badge(page)).to_have_text("Discarded")
    assert_no_errors(ana, ben)


def test_requeueing_with_an_edited_payload(site: Site) -> None:
    dead_letter = site.create_dead_letter()
    page = site.sign_in("ana", f"dead-letters/{dead_letter}")
    page.click("[data-action=requeue]")
    area = page.locator("dialog textarea.json")
    expect(area).to_have_value('{\n  "card": "bad"\n}')
    area.fill('["good"]')
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(1)
    area.fill('{"card": "good"}')
    page.click("dialog button[type=submit]")
    page.wait_for_url(f"{site.root_url}/jobs/*")
    wait_until_drawn(page)
    expect(status_badge(page)).to_have_text("succeeded")
    assert site.call("GET", f"dlq/items/{dead_letter}")["status"] == "requeued"
    assert_no_errors(page)


def test_pausing_and_resuming_a_queue(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "first"}, queue="post"))
    page = site.sign_in("ana", "queues")
    row = page.locator("[data-key=post]")
    row.locator("[data-action=pause]").click()
    page.fill("dialog textarea[name=reason]", "the post is on strike")
    page.click("dialog button[type=submit]")
    expect(row).to_contain_text("the post is on strike")
    job = site.submit("mail", {"to": "later"}, queue="post")
    waiting = site.sign_in("ana", f"jobs/{job}")
    expect(waiting.locator("#why")).to_contain_text("Paused")
    row.locator("[data-action=resume]").click()
    expect(row.locator("[data-action=pause]")).to_be_visible()
    expect(status_badge(waiting)).to_have_text("succeeded")
    assert_no_errors(page, waiting)


def test_a_viewer_cannot_change_anything(site: Site) -> None:
    job = site.submit("order", {"number": 1}, queue="orders")
    page = site.sign_in("vic", f"jobs/{job}")
    expect(page.locator("#read-only")).to_be_visible()
    expect(page.locator("[data-action]")).to_have_count(0)
    for path in ("jobs", "queues", "dead-letters", "schedules", "verify"):
        site.open(page, path)
        expect(page.locator("[data-action], tbody input[type=checkbox], .toolbar > button")).to_have_count(0)
    response = page.goto(f"{site.root_url}/tokens")
    assert response is not None and response.status == 403
    expect(page.locator(".menu [data-name=tokens]")).to_have_count(0)
    post = """async ([path, withKey]) => {
      const headers = {"Content-Type": "application/json"};
      if (withKey) headers["X-Session-Key"] = JSON.parse(sessionStorage.getItem("detent-session /"))[1];
      const response = await fetch(path, {method: "POST", headers, body: "{}"});
      return [response.status, (await response.json()).code];
    }"""
    assert page.evaluate(post, [f"/api/v1/jobs/{job}/cancel", True]) == [403, "FORBIDDEN"]
    assert page.evaluate(post, [f"/api/v1/jobs/{job}/cancel", False]) == [401, "SESSION_KEY_INVALID"]
    operator = site.sign_in("ana", f"jobs/{job}")
    assert operator.evaluate(post, [f"/api/v1/jobs/{job}/cancel", False]) == [401, "SESSION_KEY_INVALID"]
    assert site.call("GET", f"jobs/{job}")["phase"] == "blocked"


def test_payloads_are_hidden_without_the_payloads_flag(site: Site) -> None:
    job = site.wait_until_final(site.submit("mail", {"to": "secret-address"}, queue="mail"))["id"]
    page = site.sign_in("blind", f"jobs/{job}")
    expect(page.locator("#page")).to_contain_text("Hidden: your token does not show payloads.")
    assert "secret-address" not in page.content()


def test_many_jobs_are_cancelled_after_the_number_is_typed(site: Site) -> None:
    site.call("POST", "queues/flood/pause", {})
    jobs = [{"job_type": "mail", "payload": {"to": str(n)}, "queue": "flood"} for n in range(1001)]
    for start in (0, 1000):
        site.call("POST", "jobs/bulk", {"jobs": jobs[start : start + 1000]})
    page = site.sign_in("ana", "jobs?q=queue:flood+phase:claimable")
    expect(page.locator(".selection")).to_contain_text("All matching jobs")
    page.locator("tbody input[type=checkbox]").first.check()
    expect(page.locator(".selection")).to_contain_text("1 selected")
    page.click("text=Clear selection")
    page.click(".selection .danger")
    button = page.locator("dialog button[type=submit]")
    expect(page.locator("dialog h2")).to_have_text("Cancel 1,001 jobs")
    expect(page.locator("dialog p").first).to_contain_text("match “queue:flood Queued”. Waiting and queued jobs end at")
    expect(button).to_be_disabled()
    page.fill("dialog input[name=confirmation]", "1000")
    expect(button).to_be_disabled()
    page.fill("dialog input[name=confirmation]", "1001")
    button.click()
    expect(page.locator(".toast").first).to_contain_text("1,001 jobs cancelled")
    left = site.call("GET", "jobs?queue=flood&phase=claimable")["items"]
    assert left == []
    assert_no_errors(page)


def test_a_token_is_created_shown_once_and_revoked(site: Site) -> None:
    page = site.sign_in("boss", "tokens")
    page.click("text=New token")
    page.fill("dialog input[name=name]", "zoe")
    page.click("dialog button[type=submit]")
    secret = page.locator("#secret").text_content()
    assert secret and secret.startswith("detent_")
    site.tokens["zoe"] = secret
    page.click("dialog >> text=Close")
    zoe = site.sign_in("zoe", "queues")
    page.locator("tr", has_text="zoe").locator("text=Revoke").click()
    page.click("dialog button[type=submit]")
    expect(page.locator("tr", has_text="zoe")).to_contain_text("Revoked")
    expect(page.locator("tr", has_text="zoe").locator("[data-label=Expires]")).to_have_text("")
    zoe.wait_for_url(f"{site.root_url}/sign-in?next=queues")  # by itself, at its next poll
    assert_no_errors(page)


def test_a_token_of_a_worker_is_limited_to_queues(site: Site) -> None:
    page = site.sign_in("boss", "tokens")
    page.click("text=New token")
    page.fill("dialog input[name=name]", "wil")
    page.select_option("dialog select[name=role]", "worker")
    page.fill("dialog input[name=queues]", "a, b")
    page.check("dialog input[name=never]")
    page.click("dialog button[type=submit]")
    page.click("dialog >> text=Close")
    expect(page.locator("tr", has_text="wil")).to_contain_text("a, b")
    [token] = [token for token in site.call("GET", "tokens")["items"] if token["name"] == "wil"]
    assert (token["role"], token["queues"], token["expires_at"]) == ("worker", ["a", "b"], None)
    assert_no_errors(page)


def test_a_person_replaces_the_token_and_signs_in_again(site: Site) -> None:
    body = {"name": "yan", "role": "viewer", "expires_days": 10}
    site.tokens["yan"] = site.call("POST", "tokens", body)["token"]
    page = site.sign_in("yan", "queues")
    expect(page.locator("#token-expires")).to_contain_text("Your token expires on")
    page.click(".user-menu summary")
    expect(page.locator(".user-card")).to_contain_text("also known to: boss")
    page.click("#rotate-token")
    page.fill("dialog input[name=token]", "detent_wrong")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .error")).not_to_be_empty()
    page.fill("dialog input[name=token]", site.tokens["yan"])
    page.click("dialog button[type=submit]")
    secret = page.locator("#secret").text_content()
    assert secret and secret != site.tokens["yan"]
    page.click("dialog >> text=Close")
    page.wait_for_url(f"{site.root_url}/sign-in")
    site.tokens["yan"] = secret
    assert site.call("GET", "me", person="yan")["shared_with"] == []


def test_verifying_all_jobs(site: Site) -> None:
    site.wait_until_final(site.submit("mail", {"to": "x"}, queue="mail"))
    page = site.sign_in("ana", "verify")
    page.click("[data-action=verify]")
    expect(page.locator("#verify-result")).to_contain_text("No violations found")
    repeated = {**site.call("GET", "verification"), "under_way": True, "ended_at": None}
    page.route("**/api/v1/verification", lambda route: route.fulfill(json=repeated))
    page.reload()
    expect(page.locator("progress")).to_be_visible()
    expect(page.locator("#verify-result")).to_have_count(0)


def test_the_page_reconnects_after_the_connection_was_lost(site: Site) -> None:
    page = site.sign_in("ana", "jobs")
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    page.context.set_offline(True)
    expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
    job = site.wait_until_final(site.submit("mail", {"to": "meanwhile"}, queue="mail"))["id"]
    page.context.set_offline(False)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    page.click("#show-new")
    expect(page.locator(f"[data-key='{job}']")).to_be_visible()


WORDS_OF_JOB_TYPES = set(re.findall("[A-Za-z]+", " ".join(app.jobs)))
LATIN_WORDS = """() => { const copy = document.getElementById("why").cloneNode(true);
  for (const name of copy.querySelectorAll("code, a")) name.remove();
  return copy.textContent.match(/[A-Za-z]+/g) ?? []; }"""
"""Words in Latin letters in the explanation of a job's status, without names."""


def test_the_explanation_of_a_status_is_fully_chinese(site: Site) -> None:
    site.call("POST", "queues/holidays/pause", {"reason": "春节"})
    cases = {
        site.submit("mail", {"to": "x"}, queue="holidays"): ("已暂停：", {"boss"}),
        site.submit("nobody-knows", queue="mail"): ("没有工作进程处理该任务类型：", set()),
        site.submit("order", {"number": 7}, queue="orders"): ("等待信号：", set()),
        site.submit("mail", {"to": "x"}, queue="mail", hold=True): ("等待审批：", set()),
        site.call("GET", f"dlq/items/{site.create_dead_letter()}")["job_id"]: ("已结束：", None),
    }
    page = site.sign_in("ana", "jobs", locale="zh-CN")
    for job, (title, names) in cases.items():
        site.open(page, f"jobs/{job}")
        expect(page.locator("#why")).to_contain_text(title)
        if names is not None:
            assert set(page.evaluate(LATIN_WORDS)) <= {*names, *WORDS_OF_JOB_TYPES}, title
    assert_no_errors(page)


def test_language_and_theme_are_switched_and_kept(site: Site) -> None:
    page = site.sign_in("ana", "jobs", locale="zh-CN")
    expect(page.locator("h1")).to_have_text("任务")
    page.select_option("#language", "en")
    expect(page.locator("[lang=en] h1")).to_have_text("Jobs")
    wait_until_drawn(page)
    page.select_option("#theme", "dark")
    assert page.evaluate("getComputedStyle(document.body.parentNode).backgroundColor") == "rgb(14, 17, 22)"
    page.wait_for_function("document.cookie.includes('detent_theme=dark')")  # Chromium stores it in another process
    site.open(page, "queues")
    assert page.get_attribute("html", "data-theme") == "dark"
    expect(page.locator("h1")).to_have_text("Queues")


def test_screenshots_are_ignored_by_git() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text()
    assert "/screenshots/" in ignored


def test_setting_and_removing_a_limit(site: Site) -> None:
    page = site.sign_in("ana", "queues")
    page.click("[data-action=limit]")
    page.fill("dialog input[name=queue]", "mail")
    page.fill("dialog input[name=concurrency]", "3")
    page.click("dialog button[type=submit]")
    limit = page.locator("tr", has_text="queue mail")
    expect(limit).to_contain_text("3")
    site.call("PUT", "limits", {"queue": "mail", "concurrency": 3, "rate": 100, "period_seconds": 60})
    expect(limit.locator("[data-label='Max starts']")).to_have_text("100 / 1 min")
    assert site.call("GET", "limits")["items"][0]["concurrency"] == 3
    limit.locator("[data-action=remove-limit]").click()
    lead = page.locator("dialog p").first
    expect(lead).to_have_text("queue mail · Max concurrent: 3 · Max starts: 100 / 1 min")
    page.click("dialog button[type=submit]")
    expect(limit).to_have_count(0)
    assert site.call("GET", "limits")["items"] == []
    assert_no_errors(page)
