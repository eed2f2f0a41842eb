"""`detent serve`: the REST API and the dashboard, without a worker."""

from typing import Annotated, Any

from detent.cli.diagnose.database import describe, shown_url
from detent.cli.loader import load_app
from detent.cli.options import AppUrl, AsJson, LogFormat, LogFormatOption, OptionalApp, option
from detent.cli.output import print_result
from detent.client.app import Detent
from detent.client.connect import default_url
from detent.observability.job_logs import configure_logging

Host = Annotated[str, option("The address to listen on.")]
Port = Annotated[int, option("The port; 0 chooses a free one.", min=0, max=65_535)]
KnownTypesOnly = Annotated[bool, option("Refuse jobs of a type that no worker has declared.")]


def serve(
    app: OptionalApp = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    url: AppUrl = None,
    known_types_only: KnownTypesOnly = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: AsJson = False,
) -> int:
    """Serve the REST API and the dashboard until SIGTERM or Ctrl-C.

    Jobs get the options that workers declared for their type, and their payloads are checked.
    """
    from detent.web.http.serving import run

    configure_logging(log_format)
    application = load_app(app, url) if app else Detent(url or default_url())
    durable = describe(application.url).durability  # starts an event loop, so it cannot be called inside the one below
    return run(_serve(application, host, port, durable, as_json, known_types_only))


async def _serve(application: Detent, host: str, port: int, durable: str, as_json: bool, known_types_only: bool) -> int:
    from detent.web.http.serving import bind, check_address, make_server
    from detent.web.http.settings import Settings

    try:
        is_open = await check_address(await application.ready(), host)
        listening = bind(host, port)
        settings = Settings.from_environment(open_without_tokens=is_open, sweep=True, known_types_only=known_types_only)
        server = make_server(application, settings)
        print_result(as_json, *start_message(application, listening.getsockname(), durable, is_open))
        await server.serve([listening])
    finally:
        await application.close()
    return 0


def start_message(application: Detent, address: Any, durable: str, is_open: bool) -> tuple[dict[str, Any], str]:
    """What is printed at the start, as JSON and as text."""
    host, port = address[0], address[1]
    at = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    view = {"at": at, "url": shown_url(application.url), "durability": durable, "open": is_open}
    access = "no tokens exist, anyone on this machine has full access" if is_open else "a token is required"
    return view, f"open {at} (dashboard of {view['url']}, API at {at}/docs): {access}"
