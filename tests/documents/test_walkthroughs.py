"""The pages of Start and the README, followed literally from an empty folder."""

from pathlib import Path

import pytest

from support.documents.walkthrough import Reader


@pytest.mark.long
def test_the_first_job(tmp_path: Path) -> None:
    printed = Reader(tmp_path).follow("docs/start/first-job.md")
    assert "hello world\n" in printed and "succeeded" in printed


@pytest.mark.long
def test_the_tutorial(tmp_path: Path) -> None:
    printed = Reader(tmp_path).follow("docs/start/tutorial.md")
    assert printed.count("charging 75 for order 9") == 1, "the step ran once, although the worker died"
    assert "the worker died" in printed
    assert printed.index("job.retrying") < printed.index("WAITS_FOR_SIGNAL")
    assert '"packed_by":"Bo"' in printed and "2 passed" in printed
    assert "no violations" in printed
