"""Copies docs/ to the folder that MkDocs reads, and adds the pages and pictures that are generated from the code.

A link that leaves docs/ (to an example, to SECURITY.md) leads to a copy of that file below `source/` on the site. A
Chinese page (`page.zh-CN.md`) has the headings of the English one in the same order, and gets its anchors, so that one
link works in both.
"""

import os
import re
import shutil
from pathlib import Path, PurePosixPath

from . import generated
from .anchors import headings, slugify

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
HIDDEN = re.compile(r"^<!-- (?:setup|check)\b.*?-->\n", re.DOTALL | re.MULTILINE)
OTHER_LANGUAGE = re.compile(r" ?[（(]?\[(?:中文|English)\]\([^)]*\)[）)]?")
EXIT_CODE = re.compile(r"^(```console) exit=\d+$", re.MULTILINE)
"""For the tests; MkDocs does not take a block with it for code."""
CHINESE = ".zh-CN."
LANGUAGES = {".py": "python", ".mjs": "javascript", ".sh": "bash", ".toml": "toml"}


def assemble(target: Path) -> None:
    """Write all source files of the site to the folder `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    for name, content in generated.files().items():
        _write(target / name, content.encode())
    waiting = [path for path in sorted(DOCS.rglob("*")) if path.is_file()]
    written: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in written:
            written.add(path)
            _write(target / site_name(path), content_of(path, waiting))


def site_name(path: Path) -> str:
    """The name of a file of the repository on the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    source = path.relative_to(ROOT)
    return f"source/{source if path.suffix == '.md' else source.with_name(path.name.replace('.', '_') + '.md')}"


def content_of(path: Path, linked: list[Path]) -> bytes:
    """A page with the links of the site, or a file as it is. Files outside of docs/ that it links go to `linked`."""
    if path.suffix == ".md":
        return page_text(path, linked).encode()
    if path.is_relative_to(DOCS):
        return path.read_bytes()
    title = path.relative_to(ROOT).as_posix()
    return f"# {title}\n\n```{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8').rstrip()}\n```\n".encode()


def page_text(path: Path, linked: list[Path]) -> str:
    text = OTHER_LANGUAGE.sub("", HIDDEN.sub("", path.read_text("utf-8")))
    text = EXIT_CODE.sub(r"\1", text)
    if CHINESE in path.name:
        for (marks, title), anchor in zip(headings(text), english_anchors(path), strict=True):
            text = text.replace(f"\n{marks} {title}\n", f"\n{marks} {title} {{#{anchor}}}\n", 1)
    parts, position = [], 0
    for code in CODE.finditer(text):
        parts += [_with_site_links(text[position : code.start()], path, linked), code[0]]
        position = code.end()
    return "".join([*parts, _with_site_links(text[position:], path, linked)])


def _with_site_links(text: str, path: Path, linked: list[Path]) -> str:
    def rewrite(link: re.Match[str]) -> str:
        address, hash_sign, anchor = link[2].partition("#")
        if not address and CHINESE in path.name:
            address = path.name
        if not address or re.match(r"[a-z]+:", address):
            return link[0]
        file = Path(os.path.normpath(path.parent / address))
        file = file / "README.md" if file.is_dir() else file
        if not file.is_relative_to(DOCS) and file.is_file():
            linked.append(file)
        if CHINESE in file.name and file.is_relative_to(DOCS):
            anchor = dict(zip(map(_anchor, headings(file.read_text("utf-8"))), english_anchors(file), strict=True)).get(
                anchor, anchor
            )
            file = english(file)
        relative = os.path.relpath(site_name(file), PurePosixPath(site_name(path)).parent)
        return f"{link[1]}{relative}{hash_sign}{anchor}{link[3]}"

    return LINK.sub(rewrite, text)


def english(path: Path) -> Path:
    return path.with_name(path.name.replace(CHINESE, "."))


def english_anchors(path: Path) -> list[str]:
    """The anchors of the English page, one for each heading of the Chinese page at `path`."""
    original = headings(english(path).read_text("utf-8"))
    if [marks for marks, _ in original] != [marks for marks, _ in headings(path.read_text("utf-8"))]:
        raise ValueError(
            f"{path.relative_to(ROOT)} does not have the headings of {english(path).name}, in the same order"
        )
    return [_anchor(heading) for heading in original]


def _anchor(heading: tuple[str, str]) -> str:
    return slugify(heading[1])


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
