"""One new job as Detent's engine would write it, for the raw loops: they change its id and nothing else."""

from collections.abc import Sequence

from detent import Detent
from detent.core.job import Change


async def first_change(url: str) -> tuple[Change, int]:
    """Migrate the database, submit one job the public way; what was written, and its lane."""
    app = Detent(url)

    @app.job("noop")
    async def noop() -> None: ...

    engine = app.make_engine(may_migrate=True)
    await engine.open()
    seen: list[Change] = []
    insert = engine.store.insert

    async def noticed(changes: Sequence[Change]) -> set[str]:
        seen.extend(changes)
        return await insert(changes)

    engine.store.insert = noticed  # type: ignore[method-assign]
    await engine.submit(noop.submission({}))
    lane: int = await engine.store.read(lambda tx: tx.lane_of(seen[0].after))
    await engine.close()
    return seen[0], lane
