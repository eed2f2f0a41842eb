"""How much effort it takes at most to detect each planted bug, and the table of them on the guarantees page."""

from dataclasses import dataclass

from detent.proof.explore.handlers import Scenario
from detent.proof.planted_bugs import BUGS

BEGIN, END = "<!-- planted bugs: begin -->\n\n", "\n<!-- planted bugs: end -->\n"
_HEAD = "| `--bug` | what it does | explorer, states at most | simulator, seeds at most |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Budget:
    """The effort within which a bug must be detected."""

    contract: str = "standard"
    """The contract explored."""
    states: int | None = 3_000
    """None: the explorer does not detect it."""
    steps: int = 12
    slots: int = 1
    jobs: int | None = None
    scenario: Scenario = Scenario.JOBS
    """The size of the exploration."""
    seeds: int | None = 2
    """None: the simulator does not detect it."""
    simulated: str | None = None
    """The contract simulated; None: drawn by the seed."""


BUDGETS = {
    "settle-without-token": Budget(states=20_000, seeds=100, simulated="men"),
    "event-without-row": Budget(),
    "row-without-event": Budget(),
    "version-not-raised": Budget(),
    "retry-count-not-raised": Budget(),
    "loss-not-charged": Budget(seeds=10),
    "live-lease-expired": Budget(),
    "lost-twice-forgotten": Budget(states=None, seeds=60),
    "wait-misses-signal": Budget(seeds=10, simulated="formal"),
    "zombie-step": Budget(scenario=Scenario.ONCE, seeds=15, simulated="streams"),
    "lost-job-runs-on": Budget(states=None, seeds=100),
    "lease-reclaimed-early": Budget(states=None, seeds=4),
    "late-result-accepted": Budget(states=6_000, slots=2, jobs=1, seeds=None),
    "reply-of-another-lease": Budget("men", 6_000, slots=2, jobs=1, seeds=None),
    "once-not-begun": Budget("men", 30_000, 13, scenario=Scenario.ONCE, seeds=30, simulated="streams"),
    "step-not-found": Budget("men", 10_000, scenario=Scenario.STEP, seeds=2),
    "quorum-ignored": Budget(scenario=Scenario.APPROVAL, seeds=10, simulated="standard"),
    "parent-misses-child": Budget(scenario=Scenario.CHILD, seeds=12, simulated="formal"),
    "dead-letter-forgotten": Budget(),
    "second-final-event": Budget(),
    "lost-submit": Budget(),
    "heartbeat-revives": Budget(seeds=10, simulated="formal"),
    "backoff-ignored": Budget(),
    "time-runs-back": Budget(states=None, seeds=10),
    "limit-counted-early": Budget(states=None, seeds=10),
    "late-cancel": Budget(seeds=6, simulated="formal"),
    "fire-without-compare": Budget(states=None, seeds=10),
    "prune-too-early": Budget(states=None, seeds=10),
    "interruption-not-counted": Budget(states=None, seeds=10),
    "requeue-not-marked": Budget(states=None, seeds=10),
    "quota-counted-early": Budget(states=None, seeds=15),
    "batch-torn": Budget(states=None, seeds=60),
    "other-version-fails": Budget(states=None, seeds=15),
    "heartbeat-trusted-late": Budget(states=None, seeds=2),
    "restart-not-noticed": Budget(states=None, seeds=30, simulated="streams"),
    "outbox-deleted-early": Budget(states=None, seeds=10, simulated="streams"),
    "retry-not-published": Budget(states=None, seeds=10, simulated="streams"),
    "pause-ignored": Budget(states=None, seeds=2),
    "signal-replaced": Budget(states=None, seeds=20),
    "backoff-halved": Budget(states=None, seeds=2),
    "dead-letter-not-noted": Budget(states=None, seeds=2, simulated="streams"),
    "refusal-not-noted": Budget(states=None, seeds=10),
    "result-not-stored": Budget(states=None, seeds=2),
    "payload-of-another": Budget(states=None, seeds=2),
    "option-forgotten": Budget(states=None, seeds=2),
    "cancel-request-forgotten": Budget(states=None, seeds=30, simulated="standard"),
    "lease-outlasts-timeout": Budget(states=None, seeds=2),
    "claim-too-large": Budget(states=None, seeds=2),
    "stopped-worker-claims": Budget(states=None, seeds=6),
    "suspect-not-alone": Budget(states=None, seeds=25, simulated="men"),
    "retry-given-up": Budget(states=None, seeds=2),
    "failure-for-good-retried": Budget(states=None, seeds=2),
    "cancel-not-passed-on": Budget(states=None, seeds=10),
    "slot-freed-early": Budget(states=None, seeds=6),
    "requeue-loses-effect-keys": Budget(states=None, seeds=2),
    "requeue-loses-payload": Budget(states=None, seeds=2),
    "dead-letter-reopened": Budget(states=None, seeds=4, simulated="streams"),
    "newest-first": Budget(states=None, seeds=6),
    "wait-timeout-not-recorded": Budget(states=None, seeds=15),
    "signal-wakes-nobody": Budget(seeds=10),
    "overlap-ignored": Budget(states=None, seeds=25),
    "missed-run-made": Budget(states=None, seeds=120),
    "suspect-forgotten": Budget(states=None, seeds=30),
    "parent-woken-early": Budget(states=None, seeds=4, simulated="standard"),
    "children-run-on": Budget(states=None, seeds=10, simulated="standard"),
    "rejection-forgotten": Budget(scenario=Scenario.APPROVAL, seeds=None),
    "ack-before-commit": Budget(states=None, seeds=10, simulated="streams"),
    "retry-delay-dropped": Budget(states=None, seeds=10),
    "signal-not-written": Budget(states=None, seeds=10),
    "signal-data-lost": Budget(states=None, seeds=30, simulated="standard"),
    "child-results-swapped": Budget(states=None, seeds=4, simulated="standard"),
    "decision-inverted": Budget(states=None, seeds=4, simulated="standard"),
    "vote-not-written": Budget(states=None, seeds=80, simulated="standard"),
    "cancel-not-written": Budget(states=None, seeds=10, simulated="standard"),
    "wait-cut-short": Budget(states=None, seeds=15),
    "open-dead-letter-pruned": Budget(states=None, seeds=90),
    "snooze-ignored": Budget(states=None, seeds=2, simulated="standard"),
    "sleep-cut-short": Budget(states=None, seeds=2, simulated="standard"),
    "expiry-approves": Budget(states=None, seeds=30, simulated="standard"),
    "edit-not-written": Budget(states=None, seeds=20),
    "repeated-submit-refused": Budget(states=None, seeds=2),
    "repeated-result-refused": Budget(states=None, seeds=10, simulated="standard"),
    "actor-not-logged": Budget(states=None, seeds=2),
    "reopened-with-counters": Budget(states=None, seeds=4, simulated="formal"),
    "child-of-another-tenant": Budget(states=None, seeds=4, simulated="standard"),
    "audit-not-written": Budget(states=None, seeds=4),
    "key-not-released": Budget(states=None, seeds=10, simulated="formal"),
    "first-failure-forgotten": Budget(states=None, seeds=2),
    "lease-cut-short": Budget(states=None, seeds=2),
    "result-dropped-in-outage": Budget(states=None, seeds=4, simulated="standard"),
    "queued-job-not-returned": Budget(states=None, seeds=10, simulated="standard"),
    "timeout-not-enforced": Budget(states=None, seeds=4),
    "lease-not-extended": Budget(states=None, seeds=2, simulated="standard"),
}
"""Two to three times what was measured, so that other random numbers do not matter."""


def table() -> str:
    """The rows in the order of `--list-bugs`. A simulated contract is named where the seed does not draw it."""
    return _HEAD + "".join(_row(name, BUDGETS[name]) for name in BUGS)


def _row(name: str, budget: Budget) -> str:
    explored = simulated = "–"
    if budget.states:
        words = "one job, two slots" if (budget.jobs, budget.slots) == (1, 2) else budget.scenario.words
        explored = f"{budget.states:,} ({budget.contract}, {words})"
    if budget.seeds:
        simulated = str(budget.seeds) + (f" (`--contract {budget.simulated}`)" if budget.simulated else "")
    return f"| `{name}` | {BUGS[name].description} | {explored} | {simulated} |\n"
