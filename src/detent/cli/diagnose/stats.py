"""The command that takes the pulse: `stats`."""

from detent.cli.connection import on_engine
from detent.cli.options import AsJson, Url
from detent.cli.output import counted, say, say_json, show_fields, show_table
from detent.engine.reads.stats import oldest_due, read_stats, stats_view
from detent.engine.reads.why import span

from .stream_health import look_at_streams, streams_line


def stats(url: Url = None, as_json: AsJson = False) -> None:
    """Count jobs by status and phase, the backlog, dead letters and workers."""
    pulse = on_engine(url, read_stats)
    view = stats_view(pulse)
    streams = look_at_streams(url)
    if streams is not None:
        view["streams"] = streams.view()
    if as_json:
        say_json(view)
        return
    if not view["jobs"]:
        say("no jobs yet; `detent enqueue TYPE` makes one")
        return
    show_table(
        ("contract", "status", "phase", ">jobs"),
        [[contract, status, phase, number] for contract, status, phase, number in sorted(pulse.counts)],
    )
    say()
    workers, oldest = view["workers"], oldest_due(pulse)
    paused = ", ".join(f"{pause['kind'].replace('_', ' ')} {pause['name']}" for pause in view["paused"])
    show_fields(
        {
            "jobs": view["jobs"],
            "due now": view["due"] if oldest is None else f"{view['due']}, the oldest for {span(pulse.now - oldest)}",
            "due later": view["later"],
            "held": view["held"],
            "dead letters": ", ".join(f"{number} {fate}" for fate, number in sorted(pulse.dead_letters.items()))
            or "none",
            "workers": f"{workers['live']} live, {workers['busy']} of {counted(workers['slots'], 'slot')} busy",
            "paused": paused or "nothing",
            **{one.stream: streams_line(one) for one in (streams.found if streams else ())},
        }
    )
