"""Tunes the index of the site's search: no page twice, answers before details."""

import json
from pathlib import Path

BOOSTS = (
    ("start/questions/", 8.0),
    ("start/", 2.0),
    ("guides/", 2.0),
    ("operate/", 2.0),
    ("adr/", 0.3),
    ("reference/", 0.7),
)
"""Beginning of an address -> weight of its sections; others have 1."""


def tune(site: Path, sources: Path) -> None:
    """Leave out copies of source files and the English pages that stand in for missing Chinese ones; set weights."""
    file = site / "search" / "search_index.json"
    index = json.loads(file.read_text("utf-8"))
    translated = {path.relative_to(sources).as_posix().replace(".zh-CN.md", "") for path in sources.rglob("*.zh-CN.md")}
    kept = []
    for entry in index["docs"]:
        address = entry["location"].partition("#")[0]
        name = address.removeprefix("zh-CN/")
        chinese = name != address
        if name.startswith("source/") or (chinese and (name.rstrip("/") or "index") not in translated):
            continue
        boost = next((weight for start, weight in BOOSTS if name.startswith(start)), 1.0)
        kept.append({**entry, "boost": boost * (0.5 if chinese else 1.0)})
    file.write_text(json.dumps({**index, "docs": kept}, ensure_ascii=False), "utf-8")
