"""`make pictures`: draws a page of the dashboard as docs/pictures/dashboard.svg, from what Chromium shows."""

import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from dashboard.screenshots import add_data
from dashboard.site import CHROMIUM_ARGUMENTS, find_chromium, running_site, wait_until_drawn

TARGET = Path(__file__).parents[2] / "docs" / "pictures" / "dashboard.svg"
MARK = TARGET.with_name("mark.svg")
READER = Path(__file__).with_suffix(".js").read_text("utf-8")
WIDTH, HEIGHT = 1200, 800
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'PingFang SC', 'Noto Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'Liberation Mono', monospace"


def svg(items: list[dict[str, Any]]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{SANS}">'
    title = "<title>The dashboard of Detent: the page of a job with its state, timeline and steps</title>"
    frame = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#f6f7f9"/>'
    drawn = [DRAWN[item["kind"]](item) for item in items]
    return "\n".join([head, title, frame, *drawn, "</svg>", ""])


def _box(item: dict[str, Any]) -> str:
    stroke = f' stroke="{item["stroke"]}"' if item["stroke"] else ""
    place = f'x="{item["x"]}" y="{item["y"]}" width="{item["width"]}" height="{item["height"]}"'
    return f'<rect {place} rx="{item["radius"]}" fill="{item["fill"]}"{stroke}/>'


def _text(item: dict[str, Any]) -> str:
    text = item["text"].upper() if item["upper"] == "uppercase" else item["text"]
    base = round(item["y"] + item["height"] * 0.78, 1)
    font = f' font-family="{MONO}"' if item["mono"] else ""
    weight = f' font-weight="{item["weight"]}"' if item["weight"] != "400" else ""
    length = f' textLength="{item["width"]}" lengthAdjust="spacingAndGlyphs"' if len(text) > 2 else ""
    style = f'font-size="{item["size"]:g}" fill="{item["fill"]}"{font}{weight}{length}'
    return f'<text x="{item["x"]}" y="{base}" {style}>{escape(text.strip())}</text>'


def _mark(item: dict[str, Any]) -> str:
    inner = MARK.read_text("utf-8").partition(">")[2].removesuffix("</svg>")
    place = f'x="{item["x"]}" y="{item["y"]}" width="{item["width"]}" height="{item["width"]}"'
    return f'<svg {place} viewBox="0 0 32 32">{inner.strip().removesuffix("</svg>")}</svg>'


DRAWN = {"mark": _mark, "box": _box, "text": _text, "drawing": lambda item: item["markup"]}


def main() -> int:
    executable = find_chromium()
    if executable is None:
        print("make pictures needs Chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_ARGUMENTS)
        with running_site(Path(folder), browser) as site:
            add_data(site)
            job = site.submit("order", {"number": 7}, queue="shop")
            site.call("POST", f"jobs/{job}/signal", {"name": "confirmed", "data": {"by": "Bo"}})
            site.wait_until_final(job)
            size: Any = {"width": WIDTH, "height": HEIGHT}
            page = site.sign_in("boss", "", viewport=size, locale="en-US", color_scheme="light")
            page.goto(f"{site.root_url}/jobs/{job}")
            wait_until_drawn(page)
            page.wait_for_timeout(1500)
            TARGET.write_text(svg(page.evaluate(READER)), "utf-8")
            site.close_contexts()
        browser.close()
    print(f"wrote {TARGET.name}, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
