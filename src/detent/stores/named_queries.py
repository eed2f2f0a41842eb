"""What every part of a transaction stands on: the moment it began, and named queries a store knows how to run."""

from typing import Any

from detent.core.job import Micros

from .lanes import LaneBook


class NamedQueries:
    """A store says how a named query is run; the parts only name them."""

    def __init__(self, now: Micros, book: LaneBook) -> None:
        self.now = now
        self.book = book
        self.related_ids: set[str] = set()

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a named query; `where` fills the place of that name."""
        raise NameError(name)

    async def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement; how many rows it changed."""
        raise NameError(name)
