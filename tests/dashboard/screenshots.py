"""`make screenshots`: every page in both languages, light and dark, narrow and wide, into ./screenshots."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from dashboard.site import CHROMIUM_ARGUMENTS, Site, find_chromium, page_paths, running_site, wait_until_drawn

FOLDER = Path(__file__).parents[2] / "screenshots"
LOCALES = {"en": "en-US", "zh": "zh-CN"}
WIDTHS = (390, 1440)


def add_data(site: Site) -> dict[str, str]:
    """Jobs in several statuses, a schedule, a paused queue, limits, a verification; returns the paths of the pages."""
    for number in range(12):
        site.submit("mail", {"to": f"user{number}@example.org"}, queue="mail", tenant_id="ab"[number % 2])
    site.submit("order", {"number": 7}, queue="orders")
    site.submit("release", {"version": "1.4"}, queue="orders")
    site.submit("gated", {"gate": str(site.folder / "never")}, queue="gates")
    site.submit("mail", {"to": "held@example.org"}, queue="mail", hold=True)
    nightly = {
        "name": "nightly",
        "job_type": "mail",
        "cron": "0 3 * * *",
        "tz": "Europe/Berlin",
        "payload": {"to": "all"},
    }
    site.call("POST", "schedules", nightly)
    site.call("PUT", "limits", {"queue": "mail", "concurrency": 8})
    site.call("PUT", "limits", {"per": "tenant", "rate": 50})
    site.call("POST", "queues/billing/pause", {"reason": "the bank is closed"})
    site.call("POST", "queues/billing/resume", {})
    paths = page_paths(site)
    site.call("POST", "queues/orders/pause", {"reason": "stock-taking"})
    site.call("POST", "verification", {})
    return paths


def take_screenshots(site: Site, paths: dict[str, str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    count = 0
    for language, locale in LOCALES.items():
        for theme in ("light", "dark"):
            for width in WIDTHS:
                viewport = {"width": width, "height": 900 if width > 1000 else 780}
                page = site.sign_in("boss", "", viewport=viewport, locale=locale, color_scheme=theme)
                for name, path in {**paths, "sign_in": "sign-in"}.items():
                    page.goto(f"{site.root_url}/{path}")
                    wait_until_drawn(page)
                    expect(page.locator("body[data-connection=live], body.sign-in")).to_have_count(1)
                    page.screenshot(path=FOLDER / f"{name}-{language}-{theme}-{width}.png", full_page=True)
                    count += 1
                site.close_contexts()
    return count


def main() -> None:
    path = find_chromium()
    if path is None:
        sys.exit("no chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        with running_site(Path(folder), browser) as site:
            count = take_screenshots(site, add_data(site))
        browser.close()
    sys.stdout.write(f"{count} pictures in {FOLDER.name}/\n")


if __name__ == "__main__":
    main()
