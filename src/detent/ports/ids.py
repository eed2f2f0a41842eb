"""The id port: fresh job ids and lease tokens."""

from typing import Protocol


class Ids(Protocol):
    def job(self) -> str: ...
    def token(self) -> str: ...
