"""`detent serve`: the REST API and the dashboard, without a worker."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from detent.cli.diagnose.database import describe
from detent.cli.loader import load_app
from detent.cli.option_groups import LogOptions
from detent.cli.options import AppUrl, AsJson, OptionalApp, actor_or_user, option
from detent.cli.output import print_result
from detent.client.app import Detent
from detent.client.connect import default_url, shown_url, when_available

if TYPE_CHECKING:
    from detent.web.http.serving import Access

Host = Annotated[str, option("The address to listen on.")]
Port = Annotated[int, option("The port; 0 chooses a free one.", min=0, max=65_535)]
KnownTypesOnly = Annotated[bool, option("Refuse jobs of a type that no worker has declared.")]


def serve(
    app: OptionalApp = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    url: AppUrl = None,
    known_types_only: KnownTypesOnly = False,
    *,
    logs: LogOptions,
    as_json: AsJson = False,
) -> int:
    """Serve the REST API and the dashboard until SIGTERM or Ctrl-C.

    Jobs get the options that workers declared for their type, and their payloads are checked.
    """
    from detent.web.http.serving import run

    logs.configure()
    application = load_app(app, url) if app else Detent(url or default_url())
    durable = describe(application.url).durability  # starts an event loop, so it cannot be called inside the one below
    return run(_serve(application, host, port, durable, as_json, known_types_only))


async def _serve(application: Detent, host: str, port: int, durable: str, as_json: bool, known_types_only: bool) -> int:
    from detent.web.http.serving import bind, make_server, prepare_access
    from detent.web.http.settings import Settings

    try:
        with bind(host, port) as listening:
            access = await prepare_access(await when_available(application.ready), host, actor_or_user(None))
            settings = Settings.from_environment(
                open_without_tokens=access.is_open, sweep=True, known_types_only=known_types_only
            )
            server = make_server(application, settings)
            view, lines = start_message(application, listening.getsockname(), durable, access)
            print_result(as_json, view, *lines)
            await server.serve([listening])
    finally:
        await application.close()
    return 0


def start_message(
    application: Detent, address: Any, durable: str, access: "Access"
) -> tuple[dict[str, Any], list[str]]:
    """What is printed at the start, as JSON and as lines of text. A new token is printed to a terminal only."""
    host, port = address[0], address[1]
    at = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    view = {"at": at, "url": shown_url(application.url), "durability": durable, "open": access.is_open}
    who = "no tokens exist, anyone on this machine has full access" if access.is_open else "a token is required"
    lines = [f"open {at} (dashboard of {view['url']}, API at {at}/docs): {who}"]
    if access.token_file:
        view["token_file"] = access.token_file
        lines.append(f"no token existed: an admin token was created and written to {access.token_file}")
        lines += [access.secret] if sys.stdout.isatty() else []
    return view, lines
