"""Arguments and results are converted and checked by the handler's annotations: at the enqueue, the run, the result."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import pydantic
import pytest

from detent import Context, Detent, SyncContext
from detent.core.errors import DetentError, InvalidInput, JobFailed
from detent.engine import Submission
from support.waiting import within
from support.worker.running import working

pytestmark = pytest.mark.anyio


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Address:
    street: str
    number: int = 1


class Order(pydantic.BaseModel):
    id: int
    to: Address
    placed: datetime
    price: Decimal = Decimal("1.50")


ORDER = Order(id=7, to=Address("Main", 3), placed=datetime(2026, 1, 2, tzinfo=UTC))


async def test_arguments_arrive_in_their_types(app: Detent) -> None:
    seen: list[Any] = []

    @app.job("take")
    async def take(
        ctx: Context,
        order: Order,
        to: Address,
        size: Size,
        when: datetime,
        customer: UUID,
        wait: timedelta,
        extra: int = 5,
    ) -> None:
        seen.extend([order, to, size, when, customer, wait, extra])

    customer, when = UUID(int=7), datetime(2026, 2, 3, tzinfo=UTC)
    handle = await take.enqueue(ORDER, Address("Side"), Size.LARGE, when, customer=customer, wait=timedelta(seconds=90))
    stored = json.loads((await handle.job()).payload)
    assert stored["order"]["to"] == {"street": "Main", "number": 3} and "extra" not in stored, "defaults are not stored"
    async with working(app):
        await within(20, handle.result())
    assert seen == [ORDER, Address("Side"), Size.LARGE, when, customer, timedelta(seconds=90), 5]


async def test_results_come_back_in_their_types(app: Detent) -> None:
    @app.job("order")
    async def order() -> Order:
        return ORDER

    @app.job("address")
    def address() -> Address:
        return Address("Main", 2)

    @app.job("moment")
    async def moment() -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)

    @app.job("sizes")
    async def sizes() -> dict[str, list[Size]]:
        return {"all": list(Size)}

    @app.job("maybe")
    async def maybe() -> int | None:
        return None

    @app.job("loose")
    async def loose():  # type: ignore[no-untyped-def]
        return {"a": [1, None, "ü"]}

    async with working(app):
        for job, expected in (
            (order, ORDER),
            (address, Address("Main", 2)),
            (moment, datetime(2026, 1, 2, tzinfo=UTC)),
            (sizes, {"all": [Size.SMALL, Size.LARGE]}),
            (maybe, None),
            (loose, {"a": [1, None, "ü"]}),
        ):
            handle: Any = await job.enqueue()
            got = await within(20, handle.result())
            assert got == expected and type(got) is type(expected)
            assert await (await app.handle(handle.id)).result() == expected, "by id as well"


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("x",), {}, "n"),
        ((), {}, "required"),
        ((1,), {"n": 2}, "given twice"),
        ((1, 2, 3, 4), {}, "takes 3 arguments"),
        ((), {"n": 1, "wrong": 2}, "wrong is not known"),
        ((1,), {"order": {"id": 1}}, "order"),
        ((1,), {"to": Address("x", "many")}, "to"),  # type: ignore[arg-type]
        ((1,), {"to": object()}, "to"),
    ],
)
async def test_wrong_arguments_are_refused_when_enqueued(
    app: Detent, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    @app.job("take")
    async def take(n: int, order: Order | None = None, to: Address | None = None) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        await take.enqueue(*args, **kwargs)
    assert refused.value.code == "PAYLOAD_INVALID" and message in refused.value.message, refused.value
    assert refused.value.http_status == 422
    assert await (await app.ready()).store.read(lambda tx: tx.stats.counts()) == []


@pytest.mark.parametrize("value", [object(), b"\xff", float("nan"), "\ud800", {"a": object()}])
@pytest.mark.parametrize("name", ["anything", "loose"])
async def test_values_that_are_not_json_are_refused_when_enqueued(app: Detent, name: str, value: Any) -> None:
    @app.job("take")
    async def take(anything: Any = 1, loose=None) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(DetentError) as refused:
        await take.enqueue(**{name: value})
    assert refused.value.code in ("PAYLOAD_INVALID", "PAYLOAD_NOT_JSON")
    handle = await take.enqueue(**{name: {1, 2}})
    assert json.loads((await handle.job()).payload) == {name: [1, 2]}, "a set is stored as a list"


@pytest.mark.parametrize("name", ["json", "copy", "schema", "model_config", "dict", "self_", "_hidden", "validate"])
async def test_arguments_may_have_any_name(app: Detent, name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"async def take({name}: int) -> int:\n    return {name} + 1", space)  # noqa: S102
    take = app.job("take")(space["take"])
    handle = await take.enqueue(**{name: 1})
    assert json.loads((await handle.job()).payload) == {name: 1}
    async with working(app):
        assert await within(20, handle.result()) == 2


async def test_defaults_made_at_the_enqueue_are_kept(app: Detent) -> None:
    """A nested model that generated an id keeps it when the job runs."""

    class Ticket(pydantic.BaseModel):
        id: UUID = pydantic.Field(default_factory=uuid4)

    @app.job("take")
    async def take(ticket: Ticket) -> str:
        return str(ticket.id)

    ticket = Ticket()
    handle = await take.enqueue(ticket=ticket)
    async with working(app):
        assert await within(20, handle.result()) == str(ticket.id)


async def test_keywords_of_any_name(app: Detent) -> None:
    @app.job("take")
    async def take(n: int, **rest: Any) -> dict[str, Any]:
        return {"n": n, **rest}

    @app.job("only")
    async def only(**rest: Any) -> dict[str, Any]:
        return rest

    async with working(app):
        assert await within(20, (await take.enqueue(n=1, a="b")).result()) == {"n": 1, "a": "b"}
        assert await within(20, (await only.enqueue(a="b")).result()) == {"a": "b"}


class Strange:
    """A class without a pydantic schema."""


def _star(*args: int) -> None: ...


def _slash(n: int, /) -> None: ...


def _strange_argument(x: Strange) -> None: ...


def _strange_result() -> Strange:
    return Strange()


def _unresolved(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("function", [_star, _slash, _strange_argument, _strange_result, _unresolved])
def test_invalid_handlers_are_refused_when_declared(function: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        Detent("sqlite:///:memory:").job("x")(function)
    assert refused.value.code == "HANDLER_INVALID" and len(refused.value.message.split()) > 3


def test_options_and_names_are_checked_when_declared() -> None:
    app = Detent("sqlite:///:memory:")
    with pytest.raises(InvalidInput) as refused:
        app.job("x", quue="mail")  # type: ignore[call-arg]
    assert refused.value.code == "OPTION_UNKNOWN" and "quue" in refused.value.message

    @app.job("x")
    async def declared() -> None: ...

    with pytest.raises(InvalidInput, match="declared twice"):
        app.job("x")(_star)
    with pytest.raises(InvalidInput, match="run_in"):
        app.job("y", run_in="moon")(_strange_result)
    with pytest.raises(InvalidInput, match="event loop"):
        app.job("z", run_in="thread")(declared.handler.function)


def test_a_job_without_a_name_is_called_like_its_function() -> None:
    app = Detent("sqlite:///:memory:")

    @app.job
    async def charge(ctx: Context, order: int) -> int:
        return order

    @app.job(queue="mail")
    def send(order: int) -> int:
        return order

    assert (charge.name, send.name, send.handler.options.queue) == ("charge", "send", "mail")
    assert sorted(app.jobs) == ["charge", "send"]
    with pytest.raises(InvalidInput, match="'charge' is declared twice"):
        app.job(charge.handler.function)
    with pytest.raises(InvalidInput, match="a function without a name"):
        app.job(lambda: None)


async def _not_json() -> Any:
    return object()


async def _not_declared() -> int:
    return "seven"  # type: ignore[return-value]


async def _nothing_declared() -> int:
    return None  # type: ignore[return-value]


async def _not_a_number() -> Any:
    return float("nan")


async def _no_number_declared() -> list[float]:
    return [1.0, float("inf")]


async def _endless() -> Any:
    endless: list[Any] = []
    endless.append(endless)
    return endless


async def _deep() -> Any:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    return deep


def _plain_not_json(ctx: SyncContext) -> Any:
    return {1: object()}


@pytest.mark.parametrize(
    "function",
    [_not_json, _not_declared, _nothing_declared, _endless, _deep, _plain_not_json, _not_a_number, _no_number_declared],
)
async def test_a_result_that_is_no_json_fails_for_good(app: Detent, function: Any) -> None:
    app.job("x", max_retries=3)(function)
    async with working(app):
        handle = await app.jobs["x"].enqueue()
        with pytest.raises(JobFailed) as failed:
            await within(20, handle.result())
    assert failed.value.extra["job_code"] == "RESULT_INVALID"
    assert (await handle.job()).execution_no == 1


async def test_a_stored_result_that_does_not_fit_the_annotation_is_refused(app: Detent) -> None:
    """The annotation was changed after the job ran."""

    @app.job("x")
    async def returns_text() -> str:
        return "text"

    async with working(app):
        handle = await returns_text.enqueue()
        assert await within(20, handle.result()) == "text"
    other = Detent(app.url)

    @other.job("x")
    async def now_a_number() -> int:
        return 1

    async with other:
        with pytest.raises(InvalidInput) as refused:
            await (await other.handle(handle.id)).result()
    assert refused.value.code == "RESULT_INVALID"


async def test_a_handler_stays_a_plain_function(app: Detent) -> None:
    @app.job("add")
    async def add(n: int, m: int = 1) -> int:
        """Adds."""
        return n + m

    @app.job("twice")
    def twice(ctx: SyncContext, n: int) -> int:
        return 2 * n

    assert await add(2) == 3 and await add(2, m=5) == 7
    assert twice(None, 4) == 8
    assert add.__doc__ == "Adds." and add.name == "add"
    assert asyncio.iscoroutinefunction(add.__wrapped__)


async def test_enqueue_many_is_all_or_none(app: Detent) -> None:
    @app.job("add")
    async def add(n: int) -> int:
        return n

    store = (await app.ready()).store
    with pytest.raises(InvalidInput):
        await add.enqueue_many([{"n": 1}, {"n": "many"}, {"n": 3}])
    with pytest.raises(DetentError):
        await add.using(key="k").enqueue_many([{"n": 1}, {"n": 2}])
    assert await store.read(lambda tx: tx.stats.counts()) == []
    handles = await add.enqueue_many([{"n": n} for n in range(300)])
    assert len({handle.id for handle in handles}) == 300
    assert (await store.read(lambda tx: tx.stats.counts()))[0][3] == 300
    assert await add.enqueue_many([]) == []


async def test_a_payload_that_is_too_large_is_refused_with_its_size(app: Detent) -> None:
    @app.job("take")
    async def take(text: str) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        await take.enqueue(text="x" * 2_000_000)
    assert refused.value.code == "PAYLOAD_TOO_LARGE" and refused.value.extra["size"] > 2_000_000


async def test_jobs_submitted_elsewhere_are_checked_when_they_run(app: Detent) -> None:
    @app.job("take", contract="men")
    async def take(order: Order) -> int:
        return order.id

    engine = await app.ready()
    good = (await engine.jobs.submit(Submission("take", {"order": json.loads(ORDER.model_dump_json())}, "men"))).job
    bad = (await engine.jobs.submit(Submission("take", {"order": {"id": "x"}}, "men"))).job
    async with working(app):
        assert await within(20, (await app.handle(good.id)).result()) == 7
        with pytest.raises(JobFailed) as failed:
            await within(20, (await app.handle(bad.id)).result())
    assert failed.value.extra["job_code"] == engine.contract("men").code("payload_invalid")
