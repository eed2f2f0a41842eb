"""Every link of the pages people read leads to something that is there."""

import re
from pathlib import Path

from tools.docs import generated
from tools.docs.anchors import anchors

ROOT = Path(__file__).parents[1]
NAMED_TEST = re.compile(r"`(?:([\w/]+/test_\w+\.py)(?:::)?)?(test_\w+)?`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def test_the_tests_that_the_threat_model_names_exist() -> None:
    """`web/test_x.py::test_y` names a test, `test_y` one of the file that was named last."""
    missing, seen, file = [], 0, ""
    for path, name in NAMED_TEST.findall((ROOT / "docs/understand/threat-model.md").read_text("utf-8")):
        file = path or file
        seen += 1
        text = (ROOT / "tests" / file).read_text("utf-8") if (ROOT / "tests" / file).is_file() else ""
        if not text or (name and f"def {name}(" not in text):
            missing.append(f"{file} {name}")
    assert seen > 25 and missing == []


def test_every_link_resolves() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken, seen = [], 0
    for page in pages:
        for target in LINK.findall(page.read_text("utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            seen += 1
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if file.is_relative_to(ROOT / "docs") and str(file.relative_to(ROOT / "docs")) in generated.PAGES:
                continue  # written when the site is built, which checks its anchors
            known = file.exists() and (not anchor or anchor in anchors(file.read_text("utf-8")))
            if not known or ROOT not in (file, *file.parents):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert seen > 40 and broken == []
