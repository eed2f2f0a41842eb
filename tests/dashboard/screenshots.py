"""`make screenshots`: every page in both languages, light and dark, narrow and wide, into ./screenshots.

Dialogs, menus and pages without data are drawn twice: wide, light and in English; narrow, dark and in Chinese.
Names after the command choose views: `python -m dashboard.screenshots overview jobs`.
"""

import itertools
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from dashboard.site import CHROMIUM_ARGUMENTS, find_chromium
from dashboard.views import VIEWS, Data, View, sites_with_data

FOLDER = Path(__file__).parents[2] / "screenshots"
LOCALES = {"en": "en-US", "zh": "zh-CN"}
HEIGHTS = {390: 780, 1440: 900}
ALL = tuple(itertools.product(LOCALES, ("light", "dark"), HEIGHTS))
FEW = (("en", "light", 1440), ("zh", "dark", 390))
DRAWS_CHINESE = """() => {
  const pixels = (text) => {
    const context = new OffscreenCanvas(40, 40).getContext("2d");
    context.font = "30px sans-serif";
    context.fillText(text, 0, 32);
    return context.getImageData(0, 0, 40, 40).data.join();
  };
  return pixels("\u4efb") !== pixels("\u52a1");
}"""
"""Whether two characters look different: without a font for them the browser draws the same box for each."""


def take_screenshots(data: Data, views: list[View]) -> tuple[int, list[str]]:
    """Returns how many pictures there are, and the names of those that scroll sideways."""
    FOLDER.mkdir(exist_ok=True)
    count, too_wide = 0, []
    for language, theme, width in ALL:
        chosen = [view for view in views if view.is_main or (language, theme, width) in FEW]
        for (is_empty, person), group in itertools.groupby(chosen, lambda view: (view.is_empty, view.person)):
            site = data.empty if is_empty else data.full
            viewport = {"width": width, "height": HEIGHTS[width]}
            options = {"viewport": viewport, "locale": LOCALES[language], "color_scheme": theme}
            page = site.sign_in(person, "", reduced_motion="reduce", **options)  # no menu that is half open
            for view in group:
                data.show(page, view)
                page.evaluate("scrollTo(0, 0)")
                full_page = page.locator("dialog[open]").count() == 0
                name = f"{view.name}-{language}-{theme}-{width}"
                page.screenshot(path=FOLDER / f"{name}.png", full_page=full_page)
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    too_wide.append(name)
                count += 1
            site.close_contexts()
    return count, too_wide


def main() -> None:
    path = find_chromium()
    if path is None:
        sys.exit("no chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)")
    views = [view for view in VIEWS if view.name in sys.argv[1:]] or list(VIEWS)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        draws_chinese = browser.new_page().evaluate(DRAWS_CHINESE)
        with sites_with_data(Path(folder), browser) as data:
            count, too_wide = take_screenshots(data, views)
        browser.close()
    sys.stdout.write(f"{count} pictures in {FOLDER.name}/\n")
    if not draws_chinese:
        sys.stdout.write("no font has Chinese characters, their pictures show boxes: apt install fonts-wqy-microhei\n")
    if too_wide:
        sys.exit(f"wider than the screen: {', '.join(too_wide)}")


if __name__ == "__main__":
    main()
