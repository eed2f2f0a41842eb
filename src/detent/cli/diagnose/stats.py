"""`detent stats`: counts jobs, dead letters and workers."""

from detent.cli.option_groups import ConnectionOptions
from detent.cli.output import pluralize, print_fields, print_json, print_line, print_table
from detent.engine.reads.stats import oldest_due, stats_view
from detent.engine.reads.why import span

from .stream_health import describe_stream, read_streams


def stats(connection: ConnectionOptions) -> None:
    """Count jobs by status and phase, the backlog, dead letters and workers."""
    snapshot = connection.run(lambda engine: engine.stats.read())
    view = stats_view(snapshot)
    streams = read_streams(connection.url)
    if streams is not None:
        view["streams"] = streams.view()
    if connection.as_json:
        print_json(view)
        return
    if not view["jobs"]:
        print_line("No jobs yet. Create one with `detent enqueue TYPE`.")
        return
    print_table(
        ("contract", "status", "phase", ">jobs"),
        [[contract, status, phase, number] for contract, status, phase, number in sorted(snapshot.counts)],
    )
    print_line()
    workers, oldest = view["workers"], oldest_due(snapshot.backlog)
    paused = ", ".join(f"{pause['kind'].replace('_', ' ')} {pause['name']}" for pause in view["paused"])
    print_fields(
        {
            "jobs": view["jobs"],
            "ready jobs": view["due"] if oldest is None else f"{view['due']}, oldest for {span(snapshot.now - oldest)}",
            "scheduled jobs": view["later"],
            "running jobs": view["held"],
            "dead letters": ", ".join(f"{number} {status}" for status, number in sorted(snapshot.dead_letters.items()))
            or "none",
            "workers": f"{workers['live']} live, {workers['busy']} of {pluralize(workers['slots'], 'slot')} busy",
            "paused": paused or "none",
            **{health.stream: describe_stream(health) for health in (streams.streams if streams else ())},
        }
    )
