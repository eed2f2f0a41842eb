"""Mounted under a prefix of another application, all links of the dashboard work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dashboard.site import Site, assert_no_errors, record_errors, status_badge, stop_process, wait_until_drawn
from support.web.served import SOURCES, first_json


@pytest.mark.long
def test_pages_under_a_prefix(browser: Browser, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent / "mounted_app.py"), f"sqlite:///{tmp_path / 'm.db'}"]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    site = None
    try:
        site = Site(first_json(process)["at"] + "/ops/detent", browser, tmp_path)
        job = site.submit("mail", {"to": "x"}, queue="mail")
        page = site.new_context().new_page()
        record_errors(page)
        site.open(page, "")
        page.click(".menu [data-name=jobs]")
        wait_until_drawn(page)
        page.click(f"[data-key='{job}'] a")
        page.wait_for_url(f"{site.root_url}/jobs/{job}")
        wait_until_drawn(page)
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        page.click("[data-action=cancel]")
        page.click("dialog button[type=submit]")
        expect(status_badge(page)).to_have_text("cancelled")
        page.select_option("#language", "zh")
        expect(page.locator("[lang=zh-CN] .menu [data-name=jobs]")).to_contain_text("任务")
        wait_until_drawn(page)
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        # An open page navigates to the sign-in by itself; a second navigation at the same time would abort it.
        page.goto("about:blank")
        site.tokens["ana"] = site.call("POST", "tokens", {"name": "ana", "role": "operator"})["token"]
        page.goto(f"{site.root_url}/queues")
        page.wait_for_url(f"{site.root_url}/sign-in?next=queues")
        page.fill("#token", site.tokens["ana"])
        page.press("#token", "Enter")
        page.wait_for_url(f"{site.root_url}/queues")
        cookie = next(cookie for cookie in page.context.cookies() if cookie["name"] == "detent_session")
        assert cookie["path"] == "/ops/detent"
        assert_no_errors(page)
    finally:
        if site is not None:
            site.close_contexts()
        stop_process(process)
