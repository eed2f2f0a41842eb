"""`python -m tools.docs`: builds the site of this version into build/site/VERSION, without network."""

import argparse
import json
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from detent.version import __version__

from . import diagrams, llms, search_index
from .sources import DOCS, ROOT, assemble

SITE = ROOT / "build" / "site"
RELEASE = ".".join(__version__.split(".")[:2])
"""The folder of this version: patch releases share one."""
REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>Detent</title>
<meta http-equiv="refresh" content="0; url={0}/">
<a href="{0}/">{0}</a>
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, default=SITE, help="the folder of all versions")
    parser.add_argument("--sources-only", action="store_true", help="write build/docs and stop")
    arguments = parser.parse_args()
    site: Path = arguments.site.resolve()
    sources = site.parent / "docs"
    for name, drawing in diagrams.pictures().items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(drawing, "utf-8")
    assemble(sources)
    if arguments.sources_only:
        return 0
    target = site / RELEASE
    shutil.rmtree(target, ignore_errors=True)
    build(sources, target)
    search_index.tune(target, sources)
    llms.write(sources, target, nav_of(sources))
    write_versions(site)
    print(f"built {target / 'index.html'}")
    return 0


def build(sources: Path, target: Path) -> None:
    """Run MkDocs in strict mode: a warning ends the build with an error."""
    os.environ["NO_MKDOCS_2_WARNING"] = os.environ["DISABLE_MKDOCS_2_WARNING"] = "true"
    import jieba
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    jieba.setLogLevel(logging.WARNING)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(sources), site_dir=str(target), nav=nav_of(sources))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build_site(config)
    finally:
        config.plugins.on_shutdown()


def nav_of(sources: Path) -> list[Any]:
    """The navigation of mkdocs.yml; an entry `folder/` becomes the pages of that folder."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    return [_expanded(entry, sources) for entry in yaml.safe_load(text)]


def _expanded(entry: Any, sources: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(inner, sources) for title, inner in entry.items()}
    if isinstance(entry, list):
        return [_expanded(inner, sources) for inner in entry]
    if not entry.endswith("/"):
        return entry
    names = sorted(path.name for path in (sources / entry).glob("*.md") if ".zh-CN." not in path.name)
    return [entry + name for name in sorted(names, key=lambda name: (name != "README.md", name))]


def write_versions(site: Path) -> None:
    """versions.json for the selector, and a start page that leads to the newest version."""
    folders = [path.name for path in site.iterdir() if (path / "index.html").exists()]
    newest_first = sorted(folders, key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    rows = [
        {"version": name, "title": name, "aliases": ["latest"] * (name == newest_first[0])} for name in newest_first
    ]
    (site / "versions.json").write_text(json.dumps(rows))
    (site / "index.html").write_text(REDIRECT.format(newest_first[0]))


if __name__ == "__main__":
    sys.exit(main())
