"""The three injected failures under p3c and other contracts, on the real engine in memory with a manual clock."""

from typing import Any

import pytest

from detent import Context, Detent, SyncContext
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import InvalidInput
from detent.core.job import Job
from detent.core.times import SECOND
from detent.proof.verify.verify import verify
from detent.testing.clocks import START
from detent.testing.failure_injection import FailureInjector, Fault, InjectedError, InjectedTimeout, Mode
from detent.testing.single_step_worker import LEASE_SECONDS, ProcessDied, SingleStepWorker

pytestmark = pytest.mark.anyio
P3C = "p3c"


def application(injector: FailureInjector, **options: Any) -> Detent:
    app = Detent("sqlite:///:memory:")

    @app.job("charge", contract=P3C, **options)
    async def charge(ctx: Context, order: int) -> dict[str, int]:
        injector.reach("before_charge")
        return {"order": order, "execution": ctx.execution_no}

    @app.job("charge_in_thread", contract=P3C, **options)
    def charge_in_thread(ctx: SyncContext, order: int) -> dict[str, int]:
        injector.reach("before_charge")
        return {"order": order, "execution": ctx.execution_no}

    return app


async def run_job(app: Detent, name: str = "charge") -> tuple[Job, list[dict[str, Any]], SingleStepWorker]:
    async with SingleStepWorker(app) as worker:
        job = await worker.submit(app.jobs[name], order=7)
        job = await worker.run(job.id)
        history = (await worker.engine.jobs.history(job.id)).as_dict()["events"]
        assert (await verify(worker.store)).ok
        return job, history, worker


def names(history: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in history]


@pytest.mark.parametrize("name", ["charge", "charge_in_thread"])
async def test_a_timeout_is_retried_under_the_contracts_timeout_code(name: str) -> None:
    injector = FailureInjector(Fault("timeout", "before_charge"), contract=P3C)
    job, history, worker = await run_job(application(injector), name)
    assert names(history) == ["created", "worker_claim", "retryable_error", "retry_due", "completed"]
    assert history[2]["data"]["error_code"] == CONTRACTS[P3C].code("timeout")
    assert (job.result, job.failures) == ('{"order":7,"execution":2}', 1)
    assert worker.clock.now() - START == 15 * SECOND, "the first backoff, and nothing else, took time"


@pytest.mark.parametrize("name", ["charge", "charge_in_thread"])
async def test_a_transient_error_is_retried_on_the_contracts_schedule(name: str) -> None:
    injector = FailureInjector(Fault("transient_error", "before_charge", repeat=3), contract=P3C)
    job, history, worker = await run_job(application(injector), name)
    assert names(history)[-2:] == ["retry_due", "completed"]
    assert names(history).count("retryable_error") == 3
    assert worker.clock.now() - START == (15 + 30 + 60) * SECOND
    assert (job.failures, job.retries) == (3, 3)


@pytest.mark.parametrize("name", ["charge", "charge_in_thread"])
async def test_a_process_restart_interrupts_without_a_settlement_and_without_a_charge(name: str) -> None:
    injector = FailureInjector(Fault("process_restart_interrupt", "before_charge"), contract=P3C)
    job, history, worker = await run_job(application(injector), name)
    assert names(history) == ["created", "worker_claim", "process_restart", "recovery_resume", "completed"]
    assert history[2]["data"]["error_code"] == "PROCESS_RESTARTED"
    assert (job.failures, job.interruptions, worker.deaths) == (0, 1, 1)
    assert history[1]["actor"] != history[3]["actor"], "another process resumed it"
    assert worker.clock.now() - START == LEASE_SECONDS * SECOND


async def test_the_run_fails_when_the_retries_are_used_up() -> None:
    injector = FailureInjector(Fault("transient_error", "before_charge", repeat=4), contract=P3C)
    job, history, _ = await run_job(application(injector))
    assert names(history)[-1] == "non_retryable_error"
    assert (job.failures, job.result) == (4, None)


async def test_restarts_do_not_use_up_retries() -> None:
    injector = FailureInjector(Fault("process_restart_interrupt", "before_charge", repeat=8), contract=P3C)
    job, history, worker = await run_job(application(injector))
    assert (job.interruptions, job.failures, worker.deaths) == (8, 0, 8)
    assert names(history)[-1] == "completed"


async def test_faults_are_counted_per_point_and_combined() -> None:
    plan = {
        "timeout": {"point": "before_charge", "at_invocation": 2},
        "transient_error": {"point": "before_charge"},
        "process_restart_interrupt": {"point": "before_charge", "at_invocation": 3, "repeat": 2},
    }
    injector = FailureInjector.from_mapping(plan, contract=P3C)
    job, history, _ = await run_job(application(injector))
    assert names(history)[2::2] == [*["retryable_error"] * 2, *["process_restart"] * 2, "completed"]
    assert [(invocation, mode) for _, invocation, mode in injector.injected] == [
        (1, Mode.TRANSIENT_ERROR),
        (2, Mode.TIMEOUT),
        (3, Mode.PROCESS_RESTART_INTERRUPT),
        (4, Mode.PROCESS_RESTART_INTERRUPT),
    ]
    assert injector.reached == {"before_charge": 5}
    assert (job.failures, job.interruptions) == (2, 2)


async def test_the_same_faults_give_the_same_history() -> None:
    def faults() -> FailureInjector:
        return FailureInjector(
            Fault("process_restart_interrupt", "before_charge"),
            Fault("transient_error", "before_charge", at_invocation=2),
            contract=P3C,
        )

    first, second = await run_job(application(faults())), await run_job(application(faults()))
    assert first[0] == second[0]
    assert first[1] == second[1]


@pytest.mark.parametrize("contract", ["gate-b2", "men", "standard", "formal", "streams"])
async def test_every_contract_recovers_from_every_mode(contract: str) -> None:
    faults = [Fault(mode, "work", at_invocation=number) for number, mode in enumerate(Mode, 1)]
    injector = FailureInjector(*faults, contract=contract)
    app = Detent("sqlite:///:memory:")

    @app.job("work", contract=contract, max_retries=3)
    async def work() -> int:
        injector.reach("work")
        return 5

    async with SingleStepWorker(app) as worker:
        job = await worker.run((await worker.submit(work)).id)
        assert (job.result, len(injector.injected)) == ("5", 3)
        assert (await verify(worker.store)).ok


def test_an_injector_without_faults_only_counts() -> None:
    injector = FailureInjector()
    for _ in range(3):
        injector.reach("anywhere")
    assert injector.reached == {"anywhere": 3}


def test_visits_with_a_key_are_counted_apart() -> None:
    injector = FailureInjector(Fault("transient_error", "here", at_invocation=2))
    injector.reach("here", "a")
    injector.reach("here", "b")
    for key in ("a", "b"):
        with pytest.raises(InjectedError):
            injector.reach("here", key)


def test_a_timeout_the_contract_does_not_retry_is_permanent() -> None:
    men = CONTRACTS["men"]
    with pytest.raises(InjectedTimeout) as caught:
        FailureInjector(Fault("timeout", "x"), contract=men).reach("x")
    assert (caught.value.code, caught.value.retryable) == (men.code("timeout"), True)


def test_die_can_be_replaced() -> None:
    died = []
    injector = FailureInjector(Fault("process_restart_interrupt", "x"), die=lambda: died.append("x"))
    with pytest.raises(ProcessDied):
        injector.reach("x")
    assert died == ["x"]


@pytest.mark.parametrize(
    "fault", [{"mode": "flood"}, {"point": ""}, {"at_invocation": 0}, {"repeat": 0}, {"repeat": True}]
)
def test_an_invalid_fault_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Fault(**{"mode": "timeout", "point": "x", **fault})
    assert caught.value.code == "INJECTION_INVALID"


def test_a_plan_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        FailureInjector.from_mapping({"timeout": {"point": "x", "times": 3}})
    assert caught.value.code == "INJECTION_INVALID"
