"""Under a prefix of somebody else's application every address still leads where it should."""

import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect
from web.served import SOURCES, first_json

from dashboard.site import Site, ended, settled, watch


def test_the_pages_under_a_prefix(browser: Browser, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent / "mounted.py"), f"sqlite:///{tmp_path / 'm.db'}"]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    site = None
    try:
        site = Site(first_json(process)["at"] + "/ops/detent", browser, tmp_path)
        job = site.submit("mail", {"to": "x"}, queue="mail")
        page = site.context().new_page()
        watch(page)
        page.goto(f"{site.at}/")
        settled(page)
        page.click(".menu [data-name=jobs]")
        settled(page)
        page.click(f"[data-key='{job}'] a")
        page.wait_for_url(f"{site.at}/jobs/{job}")
        settled(page)
        expect(page.locator("#pulse")).to_have_attribute("data-state", "live")
        page.click("[data-act=cancel]")
        page.click("dialog button[type=submit]")
        expect(page.locator("#page .badge").first).to_have_text("cancelled")
        page.select_option("#language", "zh")
        expect(page.locator("[lang=zh-CN] .menu [data-name=jobs]")).to_contain_text("任务")
        settled(page)
        expect(page.locator("#pulse")).to_have_attribute("data-state", "live")
        page.goto("about:blank")  # a page that looks on goes to the sign-in by itself, and two ways at once end nowhere
        site.tokens["ana"] = site.call("POST", "tokens", {"name": "ana", "role": "operator"})["token"]
        page.goto(f"{site.at}/queues")
        page.wait_for_url(f"{site.at}/sign-in?next=queues")
        page.fill("#token", site.tokens["ana"])
        page.press("#token", "Enter")
        page.wait_for_url(f"{site.at}/queues")
        cookie = next(one for one in page.context.cookies() if one["name"] == "detent_session")
        assert cookie["path"] == "/ops/detent"
        assert page.troubles == []  # type: ignore[attr-defined]
    finally:
        if site is not None:
            site.close_contexts()
        ended(process)
