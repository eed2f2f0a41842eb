"""Retry rules: delays, jitter, and which error codes are retried."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move
from detent.core.errors import InvalidInput, RetryDelayFrozen
from detent.core.job import Facts, Failure
from detent.core.options import backoff
from detent.core.options.backoff import backoff_text, parse_backoff
from detent.core.outcome import after_failure, may_retry
from detent.core.retry import (
    Exponential,
    Immediate,
    Origin,
    RetryRule,
    Table,
    backoff_from,
    backoff_to,
    deterministic_jitter,
    plain,
)
from support.contracts.job_history import NOW, JobHistory, running

GATE = CONTRACTS["gate-b2"]


def no_jitter(job_id, retry_no, upper):
    return 0


def max_jitter(job_id, retry_no, upper):
    return upper


def delays(backoff, retries, jitter=no_jitter):
    return [backoff.delay_ms("job-1", retry_no, jitter) for retry_no in range(1, retries + 1)]


def test_gate_b2_waits_1_2_4_seconds_and_at_most_300_ms_more():
    assert delays(GATE.retry.backoff, 3, no_jitter) == [1000, 2000, 4000]
    assert delays(GATE.retry.backoff, 3, max_jitter) == [1300, 2300, 4300]


def test_gate_b2_draws_jitter_up_to_300_for_this_job_and_retry():
    jitter_calls = []
    GATE.retry.backoff.delay_ms("job-7", 2, lambda *arguments: jitter_calls.append(arguments) or 17)
    assert jitter_calls == [("job-7", 2, 300)]


def test_gate_b2_caps_the_growth_not_the_jitter():
    assert delays(GATE.retry.backoff, 8, max_jitter)[4:] == [16_300, 30_300, 30_300, 30_300]


def test_the_number_three_is_frozen():
    assert (GATE.retry.max_retries, GATE.retry.frozen) == (3, True)
    assert not any(CONTRACTS[name].retry.frozen for name in CONTRACTS if name != "gate-b2")


def test_the_delay_of_a_retry_follows_the_formula():
    history = JobHistory("gate-b2")
    for seconds in (1, 2, 4):
        history.move(Move.CLAIM)
        change = after_failure(GATE, history.job, Failure("X", "x"), NOW + 10**9, Facts(), max_jitter)
        assert change.after.due_at == NOW + 10**9 + seconds * 1_000_000 + 300_000
        history.fail()
        assert seconds * 1_000_000 <= history.job.due_at - history.now <= seconds * 1_000_000 + 300_000


def test_the_default_jitter_is_the_same_at_every_replay():
    jitters = [deterministic_jitter(f"job-{n}", retry, 300) for n in range(50) for retry in (1, 2, 3)]
    assert jitters == [deterministic_jitter(f"job-{n}", retry, 300) for n in range(50) for retry in (1, 2, 3)]
    # Pinned: another hash would change the delay of a job in a replay.
    assert [deterministic_jitter("job-1", retry, 300) for retry in (1, 2, 3)] == PINNED


PINNED = [96, 31, 231]


def test_the_default_jitter_depends_on_the_job_and_on_the_retry():
    assert len({deterministic_jitter("job-1", retry, 300) for retry in range(1, 50)}) > 20
    assert len({deterministic_jitter(f"job-{n}", 1, 300) for n in range(50)}) > 20
    assert deterministic_jitter("job-1", 12, 10**9) != deterministic_jitter("job-11", 2, 10**9)


def test_the_default_jitter_reaches_every_value_and_both_ends():
    jitters = {deterministic_jitter(f"job-{n}", 1, 300) for n in range(10_000)}
    assert jitters == set(range(301))


def test_the_default_jitter_is_uniform():
    jitters = [deterministic_jitter(f"job-{n}", 2, 300) for n in range(10_000)]
    assert 145 < sum(jitters) / len(jitters) < 155
    assert 900 < sum(value <= 30 for value in jitters) < 1160


@settings(deadline=None)
@given(st.text(), st.integers(1, 100), st.integers(0, 10**6))
def test_the_default_jitter_stays_within_its_bounds(job_id, retry_no, upper):
    assert 0 <= deterministic_jitter(job_id, retry_no, upper) <= upper


@settings(deadline=None)
@given(st.text(), st.integers(1, 10_000))
def test_the_delay_stays_within_its_bounds(job_id, retry_no):
    grown = min(30_000, 1000 * 2 ** (retry_no - 1))
    assert grown <= GATE.retry.backoff.delay_ms(job_id, retry_no, deterministic_jitter) <= grown + 300


def test_exponential_without_jitter_draws_none():
    def fail_if_called(*arguments):
        raise AssertionError

    assert delays(Exponential(10, 100, 0, factor=3), 4, fail_if_called) == [10, 30, 90, 100]


BACKOFFS = {
    "gate-b2": [1000, 2000, 4000],
    "men": [0, 0, 0],
    "p3c": [15_000, 30_000, 60_000, 120_000, 240_000, 300_000, 300_000],
    "streams": [0, 0, 0],
    "formal": [1000, 1000, 1000],
    "standard": [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000],
}


@pytest.mark.parametrize("name, expected", BACKOFFS.items(), ids=BACKOFFS)
def test_the_backoff_of_each_contract(name, expected):
    assert delays(CONTRACTS[name].retry.backoff, len(expected)) == expected


def test_jitter_belongs_to_gate_b2_and_standard_only():
    jitters = {name: delays(CONTRACTS[name].retry.backoff, 1, max_jitter)[0] - BACKOFFS[name][0] for name in BACKOFFS}
    assert jitters == {"gate-b2": 300, "men": 0, "p3c": 0, "streams": 0, "formal": 0, "standard": 300}


def test_the_table_of_1_5_and_15_minutes_repeats_its_last_delay():
    assert delays(Table(), 5) == [60_000, 300_000, 900_000, 900_000, 900_000]


def test_streams_takes_the_table_as_an_option():
    contract = CONTRACTS["streams"].with_options(retry=RetryRule(Table()))
    history = JobHistory(contract)
    waits = []
    for _ in range(3):
        history.move(Move.CLAIM)
        waits.append(history.fail().after.due_at - history.now)
    assert waits == [60_000_000, 300_000_000, 900_000_000]


OPTIONS = [
    ([60, 300, 900], "60,300,900", [60_000, 300_000, 900_000, 900_000]),
    ((0.25, timedelta(minutes=1)), "0.25,60", [250, 60_000, 60_000]),
    (5, "5", [5_000, 5_000]),
    (backoff.Fixed(5), "5", [5_000, 5_000]),
    (timedelta(hours=1), "3600", [3_600_000]),
    (backoff.Exponential(), "base=1,factor=2,cap=60,jitter=0.1", [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]),
    (backoff.Exponential(base=0.1, factor=1.5, cap=1, jitter=0), "base=0.1,factor=1.5,cap=1,jitter=0", [100, 150, 225]),
    ("base=10", "base=10", [10_000, 20_000, 40_000, 60_000]),
]


@pytest.mark.parametrize("value, text, expected", OPTIONS, ids=[row[1] for row in OPTIONS])
def test_the_option_of_a_job(value, text, expected):
    """Every form in Python has one text, which is stored, and its delays."""
    assert backoff_text(value) == text
    assert delays(parse_backoff(text), len(expected)) == expected


def test_the_jitter_of_the_option_is_a_part_of_each_delay():
    chosen = parse_backoff(backoff_text(backoff.Exponential(base=1, cap=60, jitter=0.1)))
    assert delays(chosen, 7, max_jitter) == [1_100, 2_200, 4_400, 8_800, 17_600, 35_200, 66_000]


@pytest.mark.parametrize(
    "value",
    [
        *(
            [],
            [-1],
            [True],
            ["5"],
            [float("nan")],
            [float("inf")],
            [10**9],
            [0.0] * 101,
            -1,
            True,
            None,
            {},
            "x",
            "1;2",
        ),
        *(backoff.Exponential(base=-1), backoff.Exponential(factor=0.5), backoff.Exponential(jitter=2)),
    ],
)
def test_another_value_is_refused(value):
    with pytest.raises(InvalidInput) as refused:
        backoff_text(value)
    assert refused.value.code == "BACKOFF_INVALID" and "60,300,900" in refused.value.message


@settings(max_examples=300)
@given(st.from_regex(backoff.PATTERN, fullmatch=True), st.integers(1, 100))
def test_every_text_of_the_pattern_is_a_backoff(text, retry_no):
    """REST documents the pattern, so what fits it must be accepted."""
    delay = parse_backoff(backoff_text(text)).delay_ms("job", retry_no, max_jitter)
    assert isinstance(delay, int) and 0 <= delay <= 2 * 10**12


def test_immediate_has_no_delay():
    assert delays(Immediate(), 3, max_jitter) == [0, 0, 0]
    history = JobHistory("men")
    history.move(Move.CLAIM)
    after = history.fail("TASK_TIMEOUT").after
    assert (after.due_at, after.ready) == (history.now, True)


@pytest.mark.parametrize("backoff", [Exponential(7, 70, 3, 5), Table((1, 2)), Immediate()])
def test_a_backoff_survives_the_round_trip(backoff):
    assert backoff_from(backoff_to(backoff)) == backoff


def test_a_backoff_that_names_no_kind_is_exponential():
    assert backoff_from({"base_ms": 5}) == Exponential(base_ms=5)


def test_a_rule_without_options_is_the_documented_one():
    documented = Exponential(base_ms=1_000, cap_ms=30_000, jitter_ms=300, factor=2, jitter_percent=0)
    assert RetryRule() == RetryRule(documented, 3, False, None, frozenset(), frozenset({"fail"}), {})


def test_contract_files_spell_the_origins_and_the_table_this_way():
    assert plain(frozenset(Origin)) == ["engine", "exception", "fail", "report"]
    assert backoff_to(Table()) == {"kind": "table", "delays_ms": [60_000, 300_000, 900_000]}
    assert backoff_from({"kind": "table", "delays_ms": [5]}) == Table((5,))
    assert backoff_from({"kind": "none"}) == Immediate()


def test_a_requested_delay_replaces_the_backoff():
    standard = CONTRACTS["standard"]
    change = after_failure(standard, running(standard), Failure("X", "x", after=5), NOW, Facts(), max_jitter)
    assert change.after.due_at == NOW + 5
    with pytest.raises(RetryDelayFrozen):
        after_failure(GATE, running(GATE), Failure("X", "x", after=5), NOW, Facts(), max_jitter)


ALLOWED = [
    # rule, code, retryable, retries of the code so far, may retry
    (RetryRule(), "X", None, 9, True),
    (RetryRule(), "X", True, 0, True),
    (RetryRule(), "X", False, 0, False),
    (RetryRule(permanent_codes=frozenset({"X"})), "X", None, 0, False),
    (RetryRule(permanent_codes=frozenset({"X"})), "X", False, 0, False),
    (RetryRule(permanent_codes=frozenset({"X"})), "X", True, 0, True),
    (RetryRule(permanent_codes=frozenset({"X"})), "Y", None, 0, True),
    (RetryRule(only_codes=frozenset({"X"})), "X", None, 0, True),
    (RetryRule(only_codes=frozenset({"X"})), "X", False, 0, False),
    (RetryRule(only_codes=frozenset({"X"})), "Y", None, 0, False),
    (RetryRule(only_codes=frozenset({"X"})), "Y", True, 0, False),
    (RetryRule(caps={"X": 2}), "X", None, 1, True),
    (RetryRule(caps={"X": 2}), "X", None, 2, False),
    (RetryRule(caps={"X": 2}), "X", True, 2, False),
    (RetryRule(caps={"X": 2}), "Y", None, 2, True),
    (RetryRule(caps={"X": 0}), "X", None, 0, False),
]


@pytest.mark.parametrize("rule, code, retryable, seen, allowed", ALLOWED)
def test_which_errors_are_retried(rule, code, retryable, seen, allowed):
    assert rule.allows(code, retryable, seen) is allowed


@pytest.mark.parametrize("name", [name for name in CONTRACTS if name != "men"])
def test_a_payload_that_does_not_validate_is_permanent(name):
    contract = CONTRACTS[name]
    assert not may_retry(contract, running(contract), Failure("PAYLOAD_INVALID", "x"))
    assert may_retry(contract, running(contract), Failure("ANYTHING", "x"))


@pytest.mark.parametrize("code", ["SCHEMA_INVALID", "TOOL_UNKNOWN"])
def test_invalid_messages_are_permanent_failures_in_streams(code):
    contract = CONTRACTS["streams"]
    assert not may_retry(contract, running(contract), Failure(code, "x"))


def test_men_retries_two_codes_and_nothing_else():
    men = CONTRACTS["men"]
    retried = {
        code
        for code in ("TASK_TIMEOUT", "TASK_EXECUTION_FAILED", "TASK_RETRY_EXHAUSTED", "PAYLOAD_INVALID", "X")
        if may_retry(men, running(men), Failure(code, "x", retryable=True))
    }
    assert retried == {"TASK_TIMEOUT", "TASK_EXECUTION_FAILED"}


def test_a_cap_counts_one_code_and_leaves_the_rest_of_the_budget():
    contract = CONTRACTS["standard"].with_options(retry=RetryRule(Immediate(), max_retries=5, caps={"A": 1}))
    history = JobHistory(contract, max_retries=5)
    for code in ("A", "B", "B"):
        history.move(Move.CLAIM)
        assert history.fail(code).after.status == "retrying"
    history.move(Move.CLAIM)
    assert history.fail("A").after.status == "failed"
    assert history.job.failures == 4


def test_a_cap_above_the_budget_adds_nothing():
    contract = CONTRACTS["standard"].with_options(retry=RetryRule(Immediate(), max_retries=1, caps={"A": 9}))
    assert JobHistory(contract, max_retries=1).fail_until_final("A") == 2
