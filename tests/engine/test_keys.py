"""Idempotency keys: where each contract looks for one, and what it makes of a hit. men has a page of its own."""

import pytest

from detent.core.outcome import Succeeded
from detent.engine import Engine, Submission, Submitted
from detent.ports.verification import KeyRow
from detent.proof.verify.verify import verify
from support.acts import NAMES, refused, refused_untouched, retryable, submit
from support.stores import Place

pytestmark = pytest.mark.anyio
GLOBAL = ("p3c", "streams")
PER_TENANT = ("gate-b2", "formal")


async def keyed(engine: Engine, contract: str, key: str | None = "k", **fields: object) -> Submitted:
    return await engine.jobs.submit(
        Submission(**({"job_type": "mail", "contract": contract, "idempotency_key": key} | fields))  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("contract", NAMES)
async def test_a_hit_answers_the_job_and_writes_nothing(engine: Engine, place: Place, contract: str) -> None:
    first = await keyed(engine, contract, payload={"a": 1})
    before = place.dump()
    again = await keyed(engine, contract, payload={"a": 1})
    assert (first.hit, again.hit) == (False, True)
    assert again.job == first.job
    assert place.dump() == before


@pytest.mark.parametrize("contract", NAMES)
async def test_a_hit_finds_a_job_that_has_ended(engine: Engine, contract: str) -> None:
    first = await keyed(engine, contract)
    claimed = (await engine.claim(engine.claim_request("w1", 1)))[0]
    await engine.settle(claimed.id, claimed.token, Succeeded())
    again = await keyed(engine, contract)
    assert again.hit
    assert (again.job.id, again.job.phase) == (first.job.id, "final")


@pytest.mark.parametrize("contract", NAMES)
async def test_other_keys_are_other_jobs(engine: Engine, contract: str) -> None:
    submitted = [await keyed(engine, contract, key) for key in ("k", "K", "k ", "ключ", "k2")]
    assert not any(m.hit for m in submitted)
    assert len({m.job.id for m in submitted}) == 5


async def test_contracts_do_not_share_keys(engine: Engine) -> None:
    assert not any([(await keyed(engine, contract)).hit for contract in NAMES])


@pytest.mark.parametrize("contract", [*PER_TENANT, "standard"])
async def test_a_key_is_the_tenants_own(engine: Engine, contract: str) -> None:
    submitted = [await keyed(engine, contract, tenant_id=tenant) for tenant in ("a", "b", "a")]
    assert [m.hit for m in submitted] == [False, False, True]


@pytest.mark.parametrize("contract", PER_TENANT)
async def test_a_tenants_key_does_not_look_at_the_scope(engine: Engine, contract: str) -> None:
    submitted = [await keyed(engine, contract, idempotency_scope=scope) for scope in (None, "s", "t")]
    assert [m.hit for m in submitted] == [False, True, True]


async def test_standard_keys_are_of_tenant_and_scope(engine: Engine) -> None:
    places = [("a", None), ("a", "s"), ("b", "s"), ("a", "t"), ("a", "s"), ("a", None)]
    submitted = [await keyed(engine, "standard", tenant_id=t, idempotency_scope=s) for t, s in places]
    assert [m.hit for m in submitted] == [False, False, False, False, True, True]


async def test_names_that_run_together_are_still_two_scopes(engine: Engine) -> None:
    pairs = [('a","b', "c"), ("a", 'b","c'), ("a/b", "c"), ("a", "b/c"), ("a", "None"), ("a", None)]
    submitted = [await keyed(engine, "standard", tenant_id=t, idempotency_scope=s) for t, s in pairs]
    assert not any(m.hit for m in submitted)


@pytest.mark.parametrize("contract", GLOBAL)
async def test_a_global_key_does_not_look_at_scope_or_queue(engine: Engine, contract: str) -> None:
    submitted = [await keyed(engine, contract, idempotency_scope=s, queue=q) for s, q in ((None, "a"), ("s", "b"))]
    assert [m.hit for m in submitted] == [False, True]


@pytest.mark.parametrize("contract", [*GLOBAL, "men"])
async def test_a_key_of_another_tenant_is_a_violation(engine: Engine, place: Place, contract: str) -> None:
    first = await keyed(engine, contract, tenant_id="a", payload={"secret": 1})
    error = await refused_untouched(place, keyed(engine, contract, tenant_id="b"), "TENANT_SCOPE_VIOLATION", 403)
    error_text = str(error.as_dict())
    assert first.job.id not in error_text and "secret" not in error_text


@pytest.mark.parametrize("contract", ["gate-b2", "standard"])
@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ({"payload": {"a": 2}}, ["payload"]),
        ({"payload": None}, ["payload"]),
        ({"job_type": "call"}, ["job_type"]),
        ({"job_type": "call", "payload": {}}, ["job_type", "payload"]),
    ],
)
async def test_other_content_under_a_key_is_a_conflict(
    engine: Engine, place: Place, contract: str, other: dict, fields: list[str]
) -> None:
    first = await keyed(engine, contract, payload={"a": 1})
    error = await refused_untouched(
        place, keyed(engine, contract, **({"payload": {"a": 1}} | other)), "IDEMPOTENCY_CONFLICT", 409
    )
    assert error.extra["conflict_fields"] == fields
    assert error.extra["job_id"] == first.job.id


@pytest.mark.parametrize("contract", ["gate-b2", "standard"])
async def test_content_is_compared_as_json_not_as_text(engine: Engine, contract: str) -> None:
    await keyed(engine, contract, payload={"a": 1, "b": [1, {"c": None}]})
    assert (await keyed(engine, contract, payload={"b": [1, {"c": None}], "a": 1})).hit


@pytest.mark.parametrize("contract", ["p3c", "streams", "formal"])
async def test_other_content_under_a_key_is_the_existing_job(engine: Engine, place: Place, contract: str) -> None:
    first = await keyed(engine, contract, payload={"a": 1})
    before = place.dump()
    again = await keyed(engine, contract, payload={"a": 2}, job_type="call", queue="other", max_retries=1)
    assert again.hit
    assert again.job == first.job
    assert place.dump() == before


@pytest.mark.parametrize("contract", GLOBAL)
async def test_a_missing_key_is_generated_and_unique(engine: Engine, contract: str) -> None:
    one, other = await keyed(engine, contract, None), await keyed(engine, contract, None)
    assert one.job.idempotency_key and other.job.idempotency_key
    assert one.job.idempotency_key != other.job.idempotency_key
    assert len(one.job.idempotency_key) <= 80
    assert (await keyed(engine, contract, one.job.idempotency_key)).job.id == one.job.id


@pytest.mark.parametrize("contract", ["gate-b2", "men", "formal", "standard"])
async def test_elsewhere_a_missing_key_stays_missing(engine: Engine, place: Place, contract: str) -> None:
    submitted = [await keyed(engine, contract, None) for _ in range(2)]
    assert not any(m.hit for m in submitted)
    assert {m.job.idempotency_key for m in submitted} == {None}
    assert [row for row in place.dump()["keys"] if "task_id" not in row[0]] == []


@pytest.mark.parametrize("contract", ["gate-b2", "p3c", "streams", "formal", "standard"])
async def test_a_blank_key_is_refused(engine: Engine, place: Place, contract: str) -> None:
    for key in ("", "  "):
        await refused_untouched(place, keyed(engine, contract, key), "KEY_INVALID", 422)


@pytest.mark.parametrize(("contract", "longest"), [("p3c", 80), ("standard", 255), ("streams", 255), ("men", 255)])
async def test_the_longest_key_passes_and_one_more_does_not(
    engine: Engine, place: Place, contract: str, longest: int
) -> None:
    assert (await keyed(engine, contract, "ä" * longest)).job.idempotency_key == "ä" * longest
    error = await refused_untouched(place, keyed(engine, contract, "ä" * (longest + 1)), "KEY_TOO_LONG", 422)
    assert error.extra["limit"] == longest


async def test_runs_of_a_task_are_numbered_from_one(engine: Engine) -> None:
    runs = [await submit(engine, "p3c", task_id=task) for task in ("a", "a", "b", "a")]
    assert [(r.task_id, r.task_attempt) for r in runs] == [("a", 1), ("a", 2), ("b", 1), ("a", 3)]


async def test_a_run_without_a_task_is_its_own(engine: Engine) -> None:
    one, other = await submit(engine, "p3c"), await submit(engine, "p3c")
    assert [(r.task_id, r.task_attempt) for r in (one, other)] == [(one.id, 1), (other.id, 1)]


async def test_runs_are_numbered_within_a_bulk(engine: Engine) -> None:
    submitted = await engine.jobs.submit_many([Submission("mail", contract="p3c", task_id="a") for _ in range(3)])
    assert [m.job.task_attempt for m in submitted] == [1, 2, 3]


async def test_a_hit_and_a_refusal_use_up_no_number(engine: Engine) -> None:
    await submit(engine, "p3c", task_id="a", idempotency_key="k", tenant_id="t")
    await submit(engine, "p3c", task_id="a", idempotency_key="k", tenant_id="t")
    await refused(submit(engine, "p3c", task_id="a", idempotency_key="k", tenant_id="u"), "TENANT_SCOPE_VIOLATION")
    assert (await submit(engine, "p3c", task_id="a", tenant_id="t")).task_attempt == 2


async def test_the_number_of_a_run_stays_while_it_is_retried(engine: Engine) -> None:
    run = await submit(engine, "p3c", task_id="a")
    claimed = (await engine.claim(engine.claim_request("w1", 1)))[0]
    job = await engine.settle(claimed.id, claimed.token, retryable("p3c"))
    assert (job.status, job.task_attempt) == ("retry_scheduled", run.task_attempt)


@pytest.mark.parametrize("contract", ["gate-b2", "men", "streams", "formal", "standard"])
async def test_other_contracts_number_no_runs(engine: Engine, contract: str) -> None:
    fields = {} if contract == "streams" else {"task_id": "a"}
    assert (await submit(engine, contract, **fields)).task_attempt is None


@pytest.mark.parametrize("contract", GLOBAL)
async def test_a_generated_key_finds_its_job_and_needs_no_row(engine: Engine, place: Place, contract: str) -> None:
    first = (await keyed(engine, contract, None)).job
    assert first.idempotency_key == f"auto-{first.id}"
    assert await engine.store.read(lambda tx: tx.verification.page(KeyRow, None, 10)) == []
    before = place.dump()
    again = await keyed(engine, contract, first.idempotency_key)
    assert (again.hit, again.job) == (True, first)
    batch = [Submission("mail", contract=contract, idempotency_key=key) for key in (first.idempotency_key, "k")]
    assert [(m.hit, m.job.id == first.id) for m in await engine.jobs.submit_many(batch)] == [
        (True, True),
        (False, False),
    ]
    assert (await verify(engine.store)).ok
    assert before != place.dump()


@pytest.mark.parametrize("contract", GLOBAL)
async def test_a_key_that_only_looks_generated_is_taken_as_it_is(engine: Engine, contract: str) -> None:
    unborn, other = engine.ids.job(), (await keyed(engine, "standard", None)).job
    for key in (f"auto-{unborn}", f"auto-{other.id}", "auto-", "auto-pilot"):
        submitted = [await keyed(engine, contract, key) for _ in range(2)]
        assert [m.hit for m in submitted] == [False, True]
    assert (await keyed(engine, contract, None, id=unborn)).hit  # a client that chooses the id of a key in use
    assert (await verify(engine.store)).ok
