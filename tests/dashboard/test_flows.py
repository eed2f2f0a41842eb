"""What people do all day, done in a browser against a server with a worker."""

import re
from pathlib import Path

from playwright.sync_api import Route, expect

from dashboard.site import Site, settled, status, untroubled


def test_signing_in_and_out(here: Site) -> None:
    page = here.context().new_page()
    page.goto(f"{here.at}/jobs?q=queue:mail")
    assert "/sign-in?next=" in page.url
    page.fill("#token", "detent_wrong")
    page.press("#token", "Enter")
    expect(page.locator("#trouble")).to_contain_text("not known")
    page.fill("#token", here.tokens["ana"])
    page.click("button[type=submit]")
    page.wait_for_url(f"{here.at}/jobs?q=queue:mail")
    cookie = next(one for one in page.context.cookies() if one["name"] == "detent_session")
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    page.click(".who summary")
    page.click("#sign-out")
    page.wait_for_url(f"{here.at}/sign-in")
    page.goto(f"{here.at}/jobs")
    assert "/sign-in?next=jobs" in page.url


def test_filtering_with_completion_is_kept_in_the_address(here: Site) -> None:
    mails = [here.ended(here.submit("mail", {"to": f"user{n}"}, queue="mail"))["id"] for n in range(3)]
    other = here.dead_letter()
    page = here.signed_in("ana", "jobs")
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
    page.fill("#filter", "colour:red")
    expect(page.locator("#filter-trouble")).to_contain_text("colour:red")
    page.fill("#filter", "type:charge phase:final")
    expect(page.locator("tbody tr").first).to_contain_text("charge")
    assert other not in page.content(), "a letter's id is no job's"
    untroubled(page)


def test_a_running_job_is_seen_to_finish_without_reload(here: Site) -> None:
    door = here.folder / "door"
    job = here.submit("gated", {"door": str(door)}, queue="gates")
    page = here.signed_in("ana", f"jobs/{job}")
    expect(status(page)).to_have_text("running")
    expect(page.locator(".diagram .node.here")).to_have_attribute("data-status", "running")
    expect(page.locator(".diagram .edge.next")).not_to_have_count(0)
    page.evaluate("window.marked = true")
    door.touch()
    expect(status(page)).to_have_text("succeeded")
    assert page.evaluate("window.marked"), "the page was loaded again"
    expect(page.locator(".diagram .node.here")).to_have_attribute("data-status", "succeeded")
    expect(page.locator(".diagram .edge.next")).to_have_count(0)
    assert page.locator(".timeline > li:not(.note)").count() >= 3
    expect(page.locator("#page")).to_contain_text("first <b>step</b>")
    expect(page.locator("[data-act]")).to_have_count(1)
    page.locator("input[type=range]").fill("1")
    expect(page.locator(".diagram .node.here")).to_have_attribute("data-status", "queued")
    page.click("text=Verify >> nth=-1")
    expect(page.locator("#verified")).to_contain_text("Sound")
    untroubled(page)


def test_what_happens_while_the_stream_is_being_opened_is_seen(here: Site) -> None:
    door = here.folder / "early-door"
    job = here.submit("gated", {"door": str(door)}, queue="gates")
    page = here.signed_in("ana", "contracts")
    held: list[Route] = []
    page.route("**/events/stream*", lambda route: held.append(route))
    here.open(page, f"jobs/{job}")
    expect(status(page)).to_have_text("running")
    door.touch()
    here.ended(job)
    held[0].continue_()
    expect(status(page)).to_have_text("succeeded", timeout=8_000)  # long before the page would look by itself
    untroubled(page)


def test_signalling_a_job_that_waits(here: Site) -> None:
    job = here.submit("order", {"number": 7}, queue="orders")
    page = here.signed_in("ana", f"jobs/{job}")
    expect(page.locator("#why")).to_contain_text("confirmed")
    page.click("[data-act=signal]")
    expect(page.locator("dialog input[name=name]")).to_have_value("confirmed")
    page.fill("dialog textarea.json", '{"by": ')
    expect(page.locator("dialog .field .trouble")).not_to_be_empty()
    page.fill("dialog textarea.json", '{"by": "ana"}')
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(0)
    expect(status(page)).to_have_text("succeeded")
    assert here.call("GET", f"jobs/{job}")["result"] == {"number": 7, "by": "ana"}
    untroubled(page)


def test_approving_and_rejecting_from_the_inbox(here: Site) -> None:
    yes = here.submit("mail", {"to": "yes"}, queue="mail", hold=True)
    no = here.submit("mail", {"to": "no"}, queue="mail", hold=True)
    page = here.signed_in("rui", "approvals")
    page.click(f"[data-key^='{yes}'] [data-act=approve]")
    page.click("dialog button[type=submit]")
    expect(page.locator(f"[data-key^='{yes}']")).to_have_count(0)
    page.click(f"[data-key^='{no}'] [data-act=reject]")
    page.fill("dialog textarea[name=reason]", "not today")
    page.click("dialog button[type=submit]")
    expect(page.locator(f"[data-key^='{no}']")).to_have_count(0)
    assert here.ended(yes)["result"] == {"sent_to": "yes"}
    assert here.ended(no)["error_code"] == "APPROVAL_REJECTED"
    looking = here.signed_in("ana", "approvals")
    expect(looking.locator("[data-act]")).to_have_count(0)
    untroubled(page, looking)


def test_approving_on_the_job_s_own_page_says_what_was_seen(here: Site) -> None:
    job = here.submit("release", {"version": "7"}, queue="orders")
    page = here.signed_in("rui", f"jobs/{job}")
    page.click("[data-act=approve]")
    with page.expect_request(f"**/jobs/{job}/approve") as sent:
        page.click("dialog button[type=submit]")
    expect(status(page)).to_have_text("succeeded")
    (asked,) = here.call("GET", f"jobs/{job}/detail")["approvals"]
    assert sent.value.post_data_json["digest"] == asked["digest"] and asked["votes"][0]["person"] == "rui"
    untroubled(page)


def test_two_people_discard_a_dead_letter(here: Site) -> None:
    dead_letter = here.dead_letter()
    ana, ben = (
        here.signed_in("ana", f"dead-letters/{dead_letter}"),
        here.signed_in("ben", f"dead-letters/{dead_letter}"),
    )
    ana.click("[data-act=discard]")
    ana.fill("dialog textarea[name=reason]", "a test card")
    ana.click("dialog button[type=submit]")
    expect(ana.locator("[data-act=discard]")).to_be_disabled()
    assert here.call("GET", f"dlq/items/{dead_letter}")["status"] == "open", "one person is not enough"
    expect(ben.locator("[data-act=discard]")).to_have_text("Confirm the discard")
    ben.click("[data-act=discard]")
    expect(ben.locator("dialog")).to_contain_text("ana proposed it: a test card")
    ben.fill("dialog textarea[name=reason]", "agreed")
    ben.click("dialog button[type=submit]")
    for page in (ana, ben):
        expect(status(page)).to_have_text("discarded")
    untroubled(ana, ben)


def test_requeueing_a_repaired_payload(here: Site) -> None:
    dead_letter = here.dead_letter()
    page = here.signed_in("ana", f"dead-letters/{dead_letter}")
    page.click("[data-act=requeue]")
    area = page.locator("dialog textarea.json")
    expect(area).to_have_value('{\n  "card": "bad"\n}')
    area.fill('["good"]')
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog")).to_have_count(1)
    area.fill('{"card": "good"}')
    page.click("dialog button[type=submit]")
    page.wait_for_url(f"{here.at}/jobs/*")
    settled(page)
    expect(status(page)).to_have_text("succeeded")
    assert here.call("GET", f"dlq/items/{dead_letter}")["status"] == "requeued"
    untroubled(page)


def test_pausing_and_resuming_a_queue(here: Site) -> None:
    here.ended(here.submit("mail", {"to": "first"}, queue="letters"))
    page = here.signed_in("ana", "queues")
    row = page.locator("[data-key=letters]")
    row.locator("[data-act=pause]").click()
    page.fill("dialog textarea[name=reason]", "the post is on strike")
    page.click("dialog button[type=submit]")
    expect(row).to_contain_text("the post is on strike")
    job = here.submit("mail", {"to": "later"}, queue="letters")
    waiting = here.signed_in("ana", f"jobs/{job}")
    expect(waiting.locator("#why")).to_contain_text("paused")
    row.locator("[data-act=resume]").click()
    expect(row.locator("[data-act=pause]")).to_be_visible()
    expect(status(waiting)).to_have_text("succeeded")
    untroubled(page, waiting)


def test_a_viewer_is_refused(here: Site) -> None:
    job = here.submit("order", {"number": 1}, queue="orders")
    page = here.signed_in("vic", f"jobs/{job}")
    expect(page.locator("#read-only")).to_be_visible()
    expect(page.locator("[data-act]")).to_have_count(0)
    for path in ("jobs", "queues", "dead-letters", "schedules", "verify"):
        here.open(page, path)
        expect(page.locator("[data-act], tbody input[type=checkbox], .toolbar > button")).to_have_count(0)
    answer = page.goto(f"{here.at}/tokens")
    assert answer is not None and answer.status == 403
    expect(page.locator(".menu [data-name=tokens]")).to_have_count(0)
    ask = """async ([path, csrf]) => {
      const headers = {"Content-Type": "application/json"};
      if (csrf) headers["X-CSRF-Token"] = document.body.dataset.csrf;
      const answer = await fetch(path, {method: "POST", headers, body: "{}"});
      return [answer.status, (await answer.json()).code];
    }"""
    assert page.evaluate(ask, [f"/api/v1/jobs/{job}/cancel", True]) == [403, "FORBIDDEN"]
    assert page.evaluate(ask, [f"/api/v1/jobs/{job}/cancel", False]) == [403, "CSRF_TOKEN_INVALID"]
    operator = here.signed_in("ana", f"jobs/{job}")
    assert operator.evaluate(ask, [f"/api/v1/jobs/{job}/cancel", False]) == [403, "CSRF_TOKEN_INVALID"]
    assert here.call("GET", f"jobs/{job}")["phase"] == "blocked"


def test_payloads_are_hidden_from_those_who_may_not_see_them(here: Site) -> None:
    job = here.ended(here.submit("mail", {"to": "secret-address"}, queue="mail"))["id"]
    page = here.signed_in("blind", f"jobs/{job}")
    expect(page.locator("#page")).to_contain_text("Hidden: your token does not show payloads.")
    assert "secret-address" not in page.content()


def test_many_are_cancelled_after_the_number_is_typed(here: Site) -> None:
    here.call("POST", "queues/flood/pause", {})
    jobs = [{"job_type": "mail", "payload": {"to": str(n)}, "queue": "flood"} for n in range(1001)]
    for start in (0, 1000):
        here.call("POST", "jobs/bulk", {"jobs": jobs[start : start + 1000]})
    page = here.signed_in("ana", "jobs?q=queue:flood")
    expect(page.locator(".selection")).to_contain_text("Everything that matches")
    page.locator("tbody input[type=checkbox]").first.check()
    expect(page.locator(".selection")).to_contain_text("1 selected")
    page.click("text=Select none")
    page.click(".selection .danger")
    button = page.locator("dialog button[type=submit]")
    expect(page.locator("dialog h2")).to_have_text("Cancel 1,001 jobs")
    expect(button).to_be_disabled()
    page.fill("dialog input[name=typed]", "1000")
    expect(button).to_be_disabled()
    page.fill("dialog input[name=typed]", "1001")
    button.click()
    expect(page.locator(".toast").first).to_contain_text("1,001 cancelled")
    left = here.call("GET", "jobs?queue=flood&phase=claimable")["jobs"]
    assert left == []
    untroubled(page)


def test_a_token_is_made_shown_once_and_revoked(here: Site) -> None:
    page = here.signed_in("boss", "tokens")
    page.click("text=New token")
    page.fill("dialog input[name=name]", "zoe")
    page.click("dialog button[type=submit]")
    secret = page.locator("#secret").text_content()
    assert secret and secret.startswith("detent_")
    here.tokens["zoe"] = secret
    page.click("dialog >> text=Close")
    zoe = here.signed_in("zoe", "queues")
    page.locator("tr", has_text="zoe").locator("text=Revoke").click()
    page.click("dialog button[type=submit]")
    expect(page.locator("tr", has_text="zoe")).to_contain_text("revoked")
    zoe.wait_for_url(f"{here.at}/sign-in?next=queues")  # by itself: it looks again every few seconds
    untroubled(page)


def test_verifying_everything(here: Site) -> None:
    here.ended(here.submit("mail", {"to": "x"}, queue="mail"))
    page = here.signed_in("ana", "verify")
    page.click("[data-act=verify]")
    expect(page.locator("#verdict")).to_contain_text("Everything is sound")


def test_the_connection_is_lost_and_comes_back(here: Site) -> None:
    page = here.signed_in("ana", "jobs")
    expect(page.locator("#pulse")).to_have_attribute("data-state", "live")
    page.context.set_offline(True)
    expect(page.locator("#pulse")).to_have_attribute("data-state", "lost")
    job = here.ended(here.submit("mail", {"to": "meanwhile"}, queue="mail"))["id"]
    page.context.set_offline(False)
    expect(page.locator("#pulse")).to_have_attribute("data-state", "live")
    expect(page.locator(f"[data-key='{job}']")).to_be_visible()


FOREIGN = """() => { const one = document.getElementById("why").cloneNode(true);
  for (const name of one.querySelectorAll("code, a")) name.remove();
  return one.textContent.match(/[A-Za-z]+/g) ?? []; }"""
"""Words in Latin letters among why a job is where it is, names apart."""


def test_a_job_says_why_in_chinese_alone(here: Site) -> None:
    here.call("POST", "queues/holidays/pause", {"reason": "春节"})
    cases = {
        here.submit("mail", {"to": "x"}, queue="holidays"): ("已暂停：", {"boss"}),
        here.submit("nobody-knows", queue="mail"): ("没有工作进程认识该类型：", set()),
        here.submit("order", {"number": 7}, queue="orders"): ("等待信号：", set()),
        here.submit("mail", {"to": "x"}, queue="mail", hold=True): ("等待审批：", set()),
        here.call("GET", f"dlq/items/{here.dead_letter()}")["job_id"]: ("已结束：", None),
    }
    page = here.signed_in("ana", "jobs", locale="zh-CN")
    for job, (lead, names) in cases.items():
        here.open(page, f"jobs/{job}")
        expect(page.locator("#why")).to_contain_text(lead)
        if names is not None:
            assert set(page.evaluate(FOREIGN)) <= {*names, "mail", "gated", "order", "release", "charge"}, lead
    untroubled(page)


def test_language_and_theme_are_switched_and_kept(here: Site) -> None:
    page = here.signed_in("ana", "jobs", locale="zh-CN")
    expect(page.locator("h1")).to_have_text("任务")
    page.select_option("#language", "en")
    expect(page.locator("[lang=en] h1")).to_have_text("Jobs")
    settled(page)
    page.select_option("#theme", "dark")
    assert page.evaluate("getComputedStyle(document.body.parentNode).backgroundColor") == "rgb(14, 17, 22)"
    here.open(page, "queues")
    assert page.get_attribute("html", "data-theme") == "dark"
    expect(page.locator("h1")).to_have_text("Queues")


def test_screens_are_kept_out_of_the_repository() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text()
    assert "/screenshots/" in ignored


def test_setting_and_removing_a_limit(here: Site) -> None:
    page = here.signed_in("ana", "queues")
    page.click("[data-act=limit]")
    page.fill("dialog input[name=queue]", "mail")
    page.fill("dialog input[name=concurrency]", "3")
    page.click("dialog button[type=submit]")
    mine = page.locator("tr", has_text="queue mail")
    expect(mine).to_contain_text("3")
    assert here.call("GET", "limits")["limits"][0]["concurrency"] == 3
    mine.locator("[data-act=unlimit]").click()
    page.click("dialog button[type=submit]")
    expect(mine).to_have_count(0)
    assert here.call("GET", "limits")["limits"] == []
    untroubled(page)
