"""The outbox and what else an orchestrator asks of a store: the same named queries in every dialect."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detent.core.job import LETTER, Change, DeadLetter, Micros
from detent.ports.outbox import Parcel


class Outbox:
    """The part of a transaction that deals with parcels; `query` and `change` come from the store."""

    now: Micros

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[tuple[Any, ...]]:
        raise NameError(name)

    async def change(self, name: str, /, **values: Any) -> int:
        raise NameError(name)

    async def post(self, changes: Iterable[Change]) -> None:
        """Put what these changes have to tell into the outbox, with the commit that made it true."""
        parcels = [_parcel_of(change) for change in changes if change.parcel]
        if parcels:
            await self.put_parcels(parcels)

    async def put_parcels(self, parcels: Sequence[Parcel]) -> None:
        await self.change("put_parcels", parcels=json.dumps(sorted(parcels)))

    async def take_parcels(self, limit: int, hold: Micros) -> list[Parcel]:
        rows = await self.query("take_parcels", limit=limit, hold=hold, now=self.now)
        return sorted(Parcel(*row) for row in rows)

    async def drop_parcels(self, parcels: Sequence[Parcel]) -> None:
        await self.change("drop_parcels", parcels=json.dumps([parcel[:3] for parcel in sorted(parcels)]))

    async def count_parcels(self) -> int:
        number: int = (await self.query("count_parcels"))[0][0]
        return number

    async def claimable(self, contracts: Sequence[str]) -> list[tuple[str, int, int]]:
        rows = await self.query("claimable", contracts=json.dumps(list(contracts)), now=self.now)
        return [(row[0], row[1], row[2]) for row in rows]

    async def open_letters(self, contracts: Sequence[str]) -> list[tuple[str, int]]:
        return [(row[0], row[1]) for row in await self.query("open_letters", contracts=json.dumps(list(contracts)))]

    async def letters_of(self, ids: Sequence[str]) -> list[DeadLetter]:
        return [DeadLetter(*row) for row in await self.query("letters_of", ids=json.dumps(list(ids)))]

    async def let_go(self, held: Mapping[str, str]) -> None:
        await self.change("let_go", held=json.dumps(dict(sorted(held.items()))), now=self.now)

    async def note_heartbeats(self, held: Mapping[str, str], names: Mapping[str, str], older_than: Micros) -> None:
        told = {"held": json.dumps(dict(held)), "names": json.dumps(dict(names))}
        await self.change("note_heartbeats", **told, older_than=older_than, now=self.now)

    async def epoch(self, name: str) -> str | None:
        found = await self.query("epoch", name=name)
        return found[0][0] if found else None

    async def put_epoch(self, name: str, epoch: str, known: str | None) -> bool:
        return await self.change("put_epoch", name=name, epoch=epoch, known=known, now=self.now) > 0


def _parcel_of(change: Change) -> Parcel:
    after = change.after
    assert change.parcel is not None
    due = after.updated_at if change.parcel == LETTER or after.due_at is None else after.due_at
    return Parcel(after.id, change.parcel, after.version, due)
