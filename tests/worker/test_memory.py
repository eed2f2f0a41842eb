"""Memory stays flat however many jobs go through one worker."""

import json
import subprocess
import sys

import pytest

from support import SUPPORT

SCRIPT = SUPPORT / "worker" / "flat_memory.py"
GROWTH_MEGABYTES = 10


@pytest.mark.drill
@pytest.mark.parametrize("jobs", [500_000])
def test_memory_is_flat_from_the_ten_thousandth_job_on(jobs: int) -> None:
    output = subprocess.run([sys.executable, str(SCRIPT), str(jobs)], capture_output=True, text=True, check=True).stdout
    sizes = {int(done): size for done, size in json.loads(output).items()}
    early = next(size for done, size in sorted(sizes.items()) if done >= 10_000)
    late = list(sizes.values())[-5:]
    print(f"\nafter 10,000 jobs {early:.0f} MB, after {jobs} {late[-1]:.0f} MB")
    assert max(late) < early + GROWTH_MEGABYTES
