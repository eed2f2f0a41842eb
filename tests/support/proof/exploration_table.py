"""`make explored` runs the searches of the explorer and writes two tables of the guarantees page.

They are the number of explored states, and the planted bugs with their budgets. Each search is complete to its depth.
The small ones are repeated by `make test`, the large ones by `make drills`.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from detent.core.contract.builtin import CONTRACTS
from detent.proof.explore.explore import Exploration, explore
from detent.proof.explore.handlers import Scenario
from support.proof import bug_budgets

PAGE = Path(__file__).parents[3] / "docs" / "understand" / "guarantees.md"
BEGIN, END = "<!-- explored: begin -->\n\n", "\n<!-- explored: end -->\n"
MOST_STATES = 10_000_000
HEAD = (
    "| contract | handlers | `make test`: depth | states | drill: depth | states | of these, states of the database |\n"
    "|---|---|---|---|---|---|---|\n"
)


class Depths(NamedTuple):
    small: int
    large: int


DEPTHS = {
    Scenario.JOBS: Depths(5, 8),
    Scenario.ONCE: Depths(6, 11),
    Scenario.STEP: Depths(6, 11),
    Scenario.CHILD: Depths(6, 10),
    Scenario.APPROVAL: Depths(7, 13),
}
SEARCHES = [(name, scenario) for name in CONTRACTS for scenario in Scenario if scenario.fits(CONTRACTS[name])]


def search(name: str, scenario: Scenario, depth: int) -> Exploration:
    return explore(CONTRACTS[name], states=MOST_STATES, scenario=scenario, depth=depth)


def row(small: Exploration, large: Exploration, scenario: Scenario) -> str:
    depths = DEPTHS[scenario]
    cells = [depths.small, f"{small.states:,}", depths.large, f"{large.states:,}", f"{large.places:,}"]
    return f"| {small.contract} | {scenario.words} | {' | '.join(map(str, cells))} |\n"


def stored_rows() -> list[list[str]]:
    """The cells of the table's rows as they are on the page."""
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def main() -> None:
    logging.disable()
    rows = []
    for name, scenario in SEARCHES:
        small, large = (search(name, scenario, depth) for depth in DEPTHS[scenario])
        for result in (small, large):
            assert result.ok and result.exhausted, (name, scenario, result.violation, result.path)
        rows.append(row(small, large, scenario))
        print(rows[-1], end="", flush=True)
    _write(BEGIN, HEAD + "".join(rows), END)
    _write(bug_budgets.BEGIN, bug_budgets.table(), bug_budgets.END)


def _write(begin: str, table: str, end: str) -> None:
    """Replace what the page has between these markers."""
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(before + begin + table + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
