"""`make screenshots`: every page, in both languages, light and dark, narrow and wide, into ./screenshots."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from dashboard.site import ARGUMENTS, Site, addresses, chromium, settled, site

FOLDER = Path(__file__).parents[2] / "screenshots"
LOCALES = {"en": "en-US", "zh": "zh-CN"}
WIDTHS = (360, 1920)


def filled(running: Site) -> dict[str, str]:
    """Something on every page: jobs that succeeded, failed, wait, are held; a schedule, a pause, an audit."""
    for number in range(12):
        running.submit("mail", {"to": f"user{number}@example.org"}, queue="mail", tenant_id="ab"[number % 2])
    running.submit("order", {"number": 7}, queue="orders")
    running.submit("gated", {"door": str(running.folder / "never")}, queue="gates")
    running.submit("mail", {"to": "held@example.org"}, queue="mail", hold=True)
    nightly = {
        "name": "nightly",
        "job_type": "mail",
        "cron": "0 3 * * *",
        "tz": "Europe/Berlin",
        "payload": {"to": "all"},
    }
    running.call("POST", "schedules", nightly)
    running.call("POST", "queues/billing/pause", {"reason": "the bank is closed"})
    running.call("POST", "queues/billing/resume", {})
    found = addresses(running)
    running.call("POST", "queues/orders/pause", {"reason": "stock-taking"})
    running.call("POST", "verification", {})
    return found


def take(running: Site, paths: dict[str, str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    taken = 0
    for language, locale in LOCALES.items():
        for theme in ("light", "dark"):
            for width in WIDTHS:
                view = {"width": width, "height": 1080 if width > 1000 else 780}
                page = running.signed_in("boss", "", viewport=view, locale=locale, color_scheme=theme)
                for name, path in {**paths, "sign-in": "sign-in"}.items():
                    page.goto(f"{running.at}/{path}")
                    settled(page)
                    expect(page.locator("body[data-live=live], body.sign-in")).to_have_count(1)
                    page.screenshot(path=FOLDER / f"{name}-{language}-{theme}-{width}.png", full_page=True)
                    taken += 1
                running.close_contexts()
    return taken


def main() -> None:
    path = chromium()
    if path is None:
        sys.exit("no chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        with site(Path(folder), browser) as running:
            taken = take(running, filled(running))
        browser.close()
    sys.stdout.write(f"{taken} pictures in {FOLDER.name}/\n")


if __name__ == "__main__":
    main()
