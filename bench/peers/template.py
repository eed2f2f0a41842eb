"""A new job as Detent's engine writes it; the raw loops insert copies that differ in the id only."""

from collections.abc import Sequence

from detent import Detent
from detent.core.job import Change


async def first_change(url: str) -> tuple[Change, int]:
    """Migrate the database and submit one job through the engine; returns what was written, and its lane."""
    app = Detent(url)

    @app.job("noop")
    async def noop() -> None: ...

    engine = app.make_engine(may_migrate=True)
    await engine.open()
    inserted: list[Change] = []
    insert = engine.store.insert

    async def recording_insert(changes: Sequence[Change]) -> set[str]:
        inserted.extend(changes)
        return await insert(changes)

    engine.store.insert = recording_insert  # type: ignore[method-assign]
    await engine.jobs.submit(noop.submission({}))
    lane: int = await engine.store.read(lambda tx: tx.queries.lane_of(inserted[0].after))
    await engine.close()
    return inserted[0], lane
