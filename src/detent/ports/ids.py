"""The id port: fresh job ids and lease tokens."""

from typing import Protocol, TypeVar

T = TypeVar("T")


class Ids(Protocol):
    def job(self) -> str: ...

    def token(self) -> str: ...
