"""A submitted job for callers without an event loop: the handle whose calls block."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .core.job import Job

if TYPE_CHECKING:
    from .app import Handle, SyncClient

R = TypeVar("R")


class SyncHandle(Generic[R]):
    """A handle whose calls block."""

    def __init__(self, client: "SyncClient", handle: "Handle[R]") -> None:
        self.id, self.hit = handle.id, handle.hit
        self._client, self._handle = client, handle

    def status(self) -> str:
        return self._client.run(self._handle.status())

    def result(self, timeout: float | None = None) -> R:
        return self._client.run(self._handle.result(timeout))

    def events(self) -> list[dict[str, Any]]:
        return self._client.run(self._handle.events())

    def show(self) -> dict[str, Any]:
        return self._client.run(self._handle.show())

    def cancel(self, reason: str | None = None, *, actor: str = "app") -> Job:
        return self._client.run(self._handle.cancel(reason, actor=actor))

    def signal(self, name: str, data: Any = None, *, actor: str = "app") -> bool:
        return self._client.run(self._handle.signal(name, data, actor=actor))

    def approve(self, **word: Any) -> Job:
        """by=, reason=, roles=, digest="""
        return self._client.run(self._handle.approve(**word))

    def reject(self, **word: Any) -> Job:
        return self._client.run(self._handle.reject(**word))
