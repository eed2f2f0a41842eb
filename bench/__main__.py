"""`python -m bench`: the short form, at most five minutes; with `--full` all contestants and measures."""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from . import chart, docs, homes, report
from .contestants import CONTESTANTS, Contestant, select
from .harness import ROUNDS, compete
from .measures import MEASURES, Sizes
from .services import Services

OUT = homes.ROOT / "bench" / "results" / "latest.json"
SHORT = ("enqueue", "callers", "drain", "pickup", "here")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        _list()
        return 0
    if options.install is not None:
        return 1 if homes.install(_homes(options.install)) else 0
    if options.docs:
        return docs.write(json.loads(options.out.read_text()), options.out.with_suffix(".svg"))
    contestants = select(options.only, full=options.full)
    measures = options.measures or list(MEASURES if options.full else SHORT)
    data = _run(contestants, measures, sizes_of(options), options)
    report.write(data, options.out)
    options.out.with_suffix(".svg").write_text(chart.svg(report.from_json(data)))
    print(f"\nreadings: {options.out}\nchart: {options.out.with_suffix('.svg')}")
    return 1 if any(missing["measure"] for missing in data["missing"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--full", action="store_true", help="every contestant and measure, more jobs")
    add("--only", type=_names, metavar="NAME,NAME", help="these contestants")
    add("--measures", type=_measures, metavar="NAME,NAME", help=f"of {', '.join(MEASURES)}")
    add("--rounds", type=int, default=ROUNDS)
    add("--jobs", type=int, help="jobs per drain, and maximum of jobs per enqueue measure")
    add("--list", action="store_true", help="list contestants, measures, and what is installed")
    add("--install", nargs="*", metavar="NAME", help="create the environments of these peers, or of all")
    add("--docs", action="store_true", help="write the tables in docs/ from the last results")
    add("--out", type=Path, default=OUT)
    return parser


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _measures(text: str) -> list[str]:
    names = _names(text)
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown measures: {', '.join(unknown)}")
    return names


def sizes_of(options: argparse.Namespace) -> Sizes:
    jobs: int = options.jobs or (60_000 if options.full else 20_000)
    if not options.full:
        return Sizes(
            jobs, pickups=min(100, jobs), growth=(jobs,), workers=(2,), sample=min(10_000, jobs), alongside=jobs
        )
    growth = (10_000, 100_000, 500_000) if options.jobs is None else (jobs, 10 * jobs)
    alongside = growth[-1]
    return Sizes(
        jobs, 2.0, min(100, jobs), growth=growth, workers=(2, 4), sample=min(10_000, jobs), alongside=alongside
    )


def _run(
    contestants: list[Contestant], measures: list[str], sizes: Sizes, options: argparse.Namespace
) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="detent-bench-"))
    homes.scratch().mkdir(parents=True, exist_ok=True)
    services = Services()
    try:
        readings = compete(contestants, measures, sizes, options.rounds, folder, services)
        versions = services.versions()
    finally:
        services.close()
        shutil.rmtree(folder, ignore_errors=True)
    report.show(readings, contestants)
    recorded_options = {"full": options.full, "rounds": options.rounds, "jobs": sizes.jobs, "measures": measures}
    return report.as_json(readings, contestants, recorded_options, versions)


def _homes(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in homes.HOMES]
    if unknown:
        raise SystemExit(f"unknown peers: {', '.join(unknown)}; known peers: {', '.join(homes.HOMES)}")
    return names or list(homes.HOMES)


def _list() -> None:
    print(f"contestants (* in the short form); peers are installed in {homes.scratch().name}/")
    for contestant in CONTESTANTS:
        mark = "*" if contestant.in_short_form else " "
        print(f" {mark} {contestant.name:<24} {contestant.store:<9} {contestant.settings}")
        print(f"   {'':<24} {contestant.includes()}")
        if reason := contestant.missing():
            print(f"   {'':<24} {reason}")
    print("measures (* in the short form)")
    for name, (_, description) in MEASURES.items():
        print(f" {'*' if name in SHORT else ' '} {name:<9} {description}")


if __name__ == "__main__":
    raise SystemExit(main())
