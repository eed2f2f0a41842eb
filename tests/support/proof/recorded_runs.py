"""The digests of the first simulated runs, which every version of Python must repeat: `make recorded-runs` writes them.

They change with the behaviour of the engine, the worker and the simulator, and not with texts or columns of tables.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from detent.proof.simulate.simulate import Run, run_seed

FILE = Path(__file__).parents[2] / "proof" / "recorded_runs.txt"
SEEDS = 20


def lines(runs: Iterable[Run]) -> list[str]:
    return [f"seed {run.config.seed}: {run.events} events, {run.trace_digest}" for run in runs]


if __name__ == "__main__":
    logging.disable()
    FILE.write_text("\n".join(lines(map(run_seed, range(SEEDS)))) + "\n")
