"""Many payloads for one request: the same jobs as if each had been asked for by itself."""

from dataclasses import fields, replace

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import InvalidInput
from detent.core.job import Job
from detent.engine import Engine, Submission
from detent.engine.submit.prepare import prepare, prepare_uniform
from detent.stores.sqlite.store import SqliteStore
from detent.system.ids import SeededIds

NOW = 1_700_000_000_000_000
PAYLOADS = [{}, {"n": 1}, {"text": "ü"}]


@pytest.mark.parametrize("contract", sorted(CONTRACTS))
@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_copies_are_what_each_would_have_been(contract: str, delay: float) -> None:
    submission = Submission("mail", contract=contract, queue="q", tenant_id="t", delay=delay, actor="me")
    alike = prepare_uniform(Engine(SqliteStore(":memory:"), ids=SeededIds(1)), submission, PAYLOADS, NOW)
    engine = Engine(SqliteStore(":memory:"), ids=SeededIds(1))
    alone = [prepare(engine, replace(submission, payload=payload), NOW) for payload in PAYLOADS]
    if alike is None:
        assert any(one.keys or one.change.notes or len(one.change.events) > 1 for one in alone), "each has its own"
        return
    for one, other in zip(alike, (prepared.change for prepared in alone), strict=True):
        assert {f.name: getattr(one.after, f.name) for f in fields(Job)} == {
            f.name: getattr(other.after, f.name) for f in fields(Job)
        }
        assert (one.outbox_item, one.events, one.notes) == (other.outbox_item, other.events, other.notes)


def test_a_bad_payload_among_good_ones_is_refused() -> None:
    engine = Engine(SqliteStore(":memory:"))
    with pytest.raises(InvalidInput) as refused:
        prepare_uniform(engine, Submission("mail"), [{}, {"n": float("nan")}], NOW)
    assert refused.value.code == "PAYLOAD_NOT_JSON"
