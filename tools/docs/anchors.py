"""Anchors of headings: the same on the site as on GitHub, so that one link works in both."""

import re


def slugify(heading: str, separator: str = "-") -> str:
    """Small letters, no punctuation, spaces become dashes. MkDocs passes the separator, which is always a dash."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def headings(text: str) -> list[tuple[str, str]]:
    """(marks such as "##", title) of the headings outside of code blocks."""
    plain = re.sub(r"^[ ]*```.*?^[ ]*```[ ]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^(#+) (.+?)[ ]*$", plain, re.MULTILINE)


def anchors(text: str) -> set[str]:
    return {slugify(title) for _, title in headings(text)}
