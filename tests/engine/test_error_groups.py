"""Dead letters grouped by error, and the pattern of a message."""

import pytest

from detent.core.access import Reach, Scope
from detent.core.job import Failure, error_group, error_pattern
from detent.core.outcome import Failed
from detent.core.times import SECOND
from detent.engine import Engine
from detent.ports.listing import Filter
from support.acts import refused, running
from support.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("one", "other", "pattern"),
    [
        ("user 7 not found", "user 1234 not found", "user <number> not found"),
        ("no key 'a b'", 'no key "x"', "no key <text>"),
        ("took 1.5 s", "took 12,000 s", "took <number> s"),
        (
            "job 01900000-0000-7000-8000-000000000001 gone",
            "job 0190aaaa-0000-7000-8000-0000000000ff gone",
            "job <id> gone",
        ),
        ("at 2026-02-25T12:00:00Z", "at 2027-01-01 00:00", "at <time>"),
        ("object at 0x7f00aa", "object at 0x1", "object at <hex>"),
        ("token ghp16C7e42F292c6912E7 expired", "token abcdefgh12345678ij expired", "token <id> expired"),
        ("commit 3f2a9bc failed", "commit deadbeef01 failed", "commit <hex> failed"),
        ("line one\n\n  two", "line one two", "line one two"),
        ("cannot open /srv/a/b.txt: denied", "cannot open /srv/other/c: denied", "cannot open <path>: denied"),
        (r"cannot open C:\a\b.txt", r"cannot open C:\x\y", "cannot open <path>"),
        (
            "404 for https://api.example/u/ann?x=1",
            "404 for https://api.example/u/bob",
            "<number> for https://api.example/<path>",
        ),
        ("mail to ann@shop.example bounced", "mail to bob.b@x.example bounced", "mail to <email> bounced"),
        ("amount -5.0 is too low", "amount 1e-3 is too low", "amount <number> is too low"),
        ("key “a” is missing", "key “b c” is missing", "key <text> is missing"),
    ],
)
def test_what_differs_between_two_messages_is_replaced(one: str, other: str, pattern: str) -> None:
    assert error_pattern(one) == error_pattern(other) == pattern


def test_words_stay() -> None:
    assert (
        error_pattern("read/write and and/or a 24/7 host-name") == "read/write and and/or a <number>/<number> host-name"
    )
    assert error_pattern("POST /refund failed") == "POST /refund failed", "the endpoint is not a file"
    assert error_pattern("can't connect: don't retry") == "can't connect: don't retry"
    assert error_pattern(None) == "" and len(error_pattern("word " * 10_000)) <= 300
    assert error_pattern('"' * 5_000), "quadratic patterns would hang here"


def test_a_group_has_one_type_class_and_code() -> None:
    group = error_group("mail", "Boom", "X", "user 7")
    assert group == error_group("mail", "Boom", "X", "user 8")
    others = [("push", "Boom", "X"), ("mail", "Bang", "X"), ("mail", "Boom", "Y"), ("mail", None, "X")]
    assert group not in {error_group(*other, "user 7") for other in others}


async def fail(engine: Engine, message: str, code: str = "BOOM", **fields: object) -> str:
    held = await running(engine, **fields)  # type: ignore[arg-type]
    failed = await engine.settle(held.id, held.token, Failed(Failure(code, message, "Boom", retryable=False)))
    return str(failed.dlq_id)


async def test_groups_count_and_remember_when_an_error_was_first_seen(engine: Engine, clock: FakeClock) -> None:
    first = clock.now()
    gone = await fail(engine, "user 1 not found")
    for person in ("ann", "bo"):
        await engine.dead_letters.discard(gone, Scope(person, "old"))
    clock.advance(3 * 86_400)
    for number in range(3):
        await fail(engine, f"user {number} not found", queue=f"q{number}")
    clock.advance(60)
    last = await fail(engine, "disk full", code="DISK", job_type="backup")
    found = await engine.dead_letters.groups(Filter(status="open"))
    users, disk = found.groups
    assert (users.count, users.pattern, users.error_class, users.error_code) == (
        3,
        "user <number> not found",
        "Boom",
        "BOOM",
    )
    assert users.first_at == first, "the discarded one counts: this error is not new"
    assert (disk.count, disk.first_at, disk.last_at, disk.last_id) == (1, clock.now(), clock.now(), last)
    assert sum(users.slots) == 3 and disk.slots[-1] == 1 and found.searched_to is None
    assert len(users.slots) == 24 and found.slot_width == 86_400 * SECOND // 24 + 1
    assert [group.count for group in (await engine.dead_letters.groups(Filter())).groups] == [4, 1]
    matching = await engine.dead_letters.requeue_many(Filter(error_group=users.group), Scope("ann"))
    assert matching.done == 3


async def test_tenants_and_tokens_see_their_own_groups(engine: Engine, clock: FakeClock) -> None:
    await fail(engine, "user 1 not found", tenant_id="a")
    clock.advance(3600)
    await fail(engine, "user 2 not found", tenant_id="b", queue="other")
    (group,) = (await engine.scoped(tenant="b").dead_letters.groups()).groups
    assert (group.count, group.first_at) == (1, clock.now())
    (limited,) = (await engine.scoped(tenant=None, reach=Reach(queues=("other",))).dead_letters.groups()).groups
    assert limited.count == 1
    blind = engine.scoped(tenant=None, payloads=False)
    (hidden,) = (await blind.dead_letters.groups()).groups
    assert (hidden.count, hidden.group, hidden.pattern, hidden.error_class) == (2, None, None, "Boom")
    await refused(blind.dead_letters.page(Filter(error_group="x")), "FILTER_INVALID", 422)


async def test_reading_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.engine.reads.error_groups._SCAN", 3)
    letters = [await fail(engine, "x", job_type=f"t{number}") for number in range(5)]
    found = await engine.dead_letters.groups(Filter(status="open"))
    assert (len(found.groups), found.searched_to) == (3, letters[2])
    monkeypatch.setattr("detent.engine.reads.error_groups.MAX_GROUPS", 1)
    assert (await engine.dead_letters.groups(Filter(status="open"))).more_groups == 2
