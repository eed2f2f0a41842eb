"""`detent serve`: the REST API, without a worker."""

from typing import Annotated, Any

from detent.cli.diagnose.database import durability, shown_url
from detent.cli.loader import load_app
from detent.cli.options import AppUrl, AsJson, LogForm, LogFormat, MaybeApp, option
from detent.cli.output import tell
from detent.client.app import Detent
from detent.client.connect import default_url
from detent.observability.job_logs import set_up

Host = Annotated[str, option("--host", "The address to listen on.")]
Port = Annotated[int, option("--port", "The port; 0 takes a free one.", min=0, max=65_535)]
_HOST, _PORT = "127.0.0.1", 8400


def serve(
    app: MaybeApp = None,
    host: Host = _HOST,
    port: Port = _PORT,
    url: AppUrl = None,
    log_format: LogFormat = LogForm.TEXT,
    as_json: AsJson = False,
) -> int:
    """Serve the REST API and its pages until SIGTERM or Ctrl-C. Without APP it knows jobs, but no handlers."""
    from detent.web.http.serving import run

    set_up(log_format)
    application = load_app(app) if app else Detent(url or default_url())
    if url:
        application.url = url
    durable = durability(application.url)  # asks the server on a loop of its own, so not from within ours
    return run(_serve(application, host, port, durable, as_json))


async def _serve(application: Detent, host: str, port: int, durable: str, as_json: bool) -> int:
    from detent.web.http.serving import bind, check_address, make_server
    from detent.web.http.settings import Settings

    try:
        is_open = await check_address(await application.ready(), host)
        listening = bind(host, port)
        settings = Settings.from_environment(open_without_tokens=is_open, sweep=True)
        server = make_server(application, settings)
        tell(as_json, *told(application, listening.getsockname(), durable, is_open))
        await server.serve([listening])
    finally:
        await application.close()
    return 0


def told(application: Detent, address: Any, durable: str, is_open: bool) -> tuple[dict[str, Any], str]:
    """What is said at the start, for programs and for people."""
    host, port = address[0], address[1]
    at = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    facts = {
        "at": at,
        "url": shown_url(application.url),
        "durability": durable,
        "open": is_open,
    }
    door = "no tokens yet, so everyone on this machine may do everything" if is_open else "asks for a token"
    return facts, f"open {at} (dashboard of {facts['url']}, API at {at}/docs): {door}"
