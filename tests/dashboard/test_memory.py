"""Drills: memory of open pages while events flow. Each page has its own renderer process."""

import json
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dashboard.crowd import crowded_site
from dashboard.event_flow import event_flow
from dashboard.plain_browser import PlainBrowser, plain_browser
from dashboard.site import Site

pytestmark = pytest.mark.drill
MB = 1_000_000
MOST_PRIVATE = 200 * MB
SAMPLES = 30
EVENTS_PER_SECOND = 5_000


@dataclass(frozen=True)
class Sample:
    """Of one page after a garbage collection; bytes.

    private: of its renderer process, what the task manager of the browser shows; resident also counts the pages of the
    program file, which all processes of the browser share.
    """

    heap: int
    private: int
    resident: int
    nodes: int
    listeners: int


@dataclass
class OpenPage:
    target: str
    process: int
    samples: list[Sample] = field(default_factory=list)

    def measure(self, browser: PlainBrowser) -> Sample:
        with browser.attached(self.target) as session:
            browser.send("Performance.enable", session)
            browser.send("HeapProfiler.collectGarbage", session)
            rows = browser.send("Performance.getMetrics", session)["metrics"]
        metrics = {row["name"]: int(row["value"]) for row in rows}
        numbers = (metrics["JSHeapUsedSize"], *memory(self.process), metrics["Nodes"], metrics["JSEventListeners"])
        self.samples.append(Sample(*numbers))
        return self.samples[-1]

    def growth(self, name: str) -> tuple[float, float]:
        """The median of the samples after the first fifth, and of the last ones. Of nodes the most in the first two
        fifths: a list of running jobs that is empty for a while has fewer, and a full one is no growth."""
        values = [getattr(sample, name) for sample in self.samples]
        part = max(1, len(values) // 5)
        before = max(values[: 2 * part]) if name == "nodes" else statistics.median(values[part : 2 * part] or values)
        return before, statistics.median(values[-part:])


def memory(process: int) -> tuple[int, int]:
    """Private and resident bytes of a process."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    kilobytes = {line[0]: int(line[1]) for line in lines if line[-1] == "kB"}
    return (kilobytes["RssAnon:"] + kilobytes["VmSwap:"]) * 1024, kilobytes["VmRSS:"] * 1024


def private_bytes(browser: PlainBrowser) -> dict[int, int]:
    """Of each renderer process."""
    processes: list[dict[str, Any]] = browser.send("SystemInfo.getProcessInfo")["processInfo"]
    return {process["id"]: memory(process["id"])[0] for process in processes if process["type"] == "renderer"}


def open_page(browser: PlainBrowser, site: Site, path: str) -> OpenPage:
    """The page, and its process: the one that grows while the page fills an array."""
    target = browser.open(site, "boss", path)
    with browser.attached(target) as session:
        before = private_bytes(browser)
        browser.evaluate(session, "window.mark = new Uint8Array(60e6).fill(1); null")
        after = private_bytes(browser)
        browser.evaluate(session, "window.mark = null")
    (process,) = [process for process, size in after.items() if size - before.get(process, size) > 50 * MB]
    return OpenPage(target, process)


@pytest.mark.parametrize(("store", "minutes"), [("sqlite", 60), ("postgres", 5)])
def test_memory_of_live_pages_is_bounded(tmp_path: Path, store: str, minutes: int) -> None:
    """With a million jobs, 500 queues and 200 workers."""
    with (
        plain_browser(tmp_path) as browser,
        crowded_site(None, tmp_path, store) as (site, _),
        event_flow(tmp_path, site.database_url, EVENTS_PER_SECOND) as flow,
    ):
        paths = {"overview": "", "jobs": "jobs", "queues": "queues", "queue": "queue?name=flow-0", "workers": "workers"}
        paths["job"] = f"jobs/{flow.chatty_job()}"
        pages = {name: open_page(browser, site, path) for name, path in paths.items()}
        began = time.monotonic()
        for number in range(1, SAMPLES + 1):
            for name, page in pages.items():
                line = {"minute": round((time.monotonic() - began) / 60, 1), "page": name}
                print(json.dumps(line | asdict(page.measure(browser))), flush=True)
            time.sleep(max(0, began + number * minutes * 60 / SAMPLES - time.monotonic()))
        print({"events": sum(flow.rates()), "median rate": statistics.median(flow.rates())})
        for name, page in pages.items():
            assert max(sample.private for sample in page.samples) < MOST_PRIVATE, name
            for quantity, tolerance in (("heap", MB), ("nodes", 200), ("listeners", 20), ("private", 10 * MB)):
                first, last = page.growth(quantity)
                assert last < first * 1.1 + tolerance, (name, quantity, first, last)
