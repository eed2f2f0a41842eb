"""`detent token`: creates, lists and revokes API tokens."""

from typing import Annotated, Any

import typer

from detent.cli.option_groups import ActorOptions, CommandGroup, ConnectionOptions
from detent.cli.options import option
from detent.cli.output import relative_time
from detent.core.access import Role, Token
from detent.core.job import Micros
from detent.engine.control.access import token_view

group = CommandGroup(help="Create, list and revoke API tokens.", no_args_is_help=True)


@group.command("create")
def create(
    name: Annotated[str, option("The person; several tokens of a person count as one person in approvals.")],
    role: Annotated[Role, option("The permissions of the token.")],
    acts_as: Annotated[
        list[str] | None, option("A role for approvals that require roles; may be repeated.", name="--as")
    ] = None,
    tenant: Annotated[str | None, option("Restrict the token to this tenant.")] = None,
    no_payloads: Annotated[bool, option("Hide payloads, results and error messages.")] = False,
    expires_days: Annotated[float | None, option("Days until the token expires; default: never.")] = None,
    *,
    actor: ActorOptions,
    connection: ConnectionOptions,
) -> None:
    """Create a token. It is printed once: only a digest is stored."""
    limits: dict[str, Any] = {"tenant": tenant, "payloads": not no_payloads, "expires_days": expires_days}
    now, (token, secret) = connection.run_with_time(
        lambda engine: engine.tokens.create(name, role, actor.scope(), **limits, roles=acts_as or ())
    )
    note = f"{token.role} token of {token.person}; store it now, it is not shown again"
    connection.print_result({"token": secret, **token_view(token, now)}, secret, note)


@group.command("list")
def list_tokens(connection: ConnectionOptions) -> None:
    """List tokens without their secrets."""
    now, tokens = connection.run_with_time(lambda engine: engine.tokens.list())
    columns = ("id", "name", "role", "tenant", "payloads", "created", "status")
    empty = "No tokens. Create one with `detent token create --name YOU --role admin`."
    view = {"tokens": [token_view(token, now) for token in tokens]}
    connection.print_list(view, columns, (_row(token, now) for token in tokens), empty)


def _row(token: Token, now: Micros) -> list[str]:
    payloads, created = "visible" if token.payloads else "hidden", relative_time(now, token.created_at)
    return [token.id, token.person, token.role, token.tenant_id or "all", payloads, created, _status(token, now)]


def _status(token: Token, now: Micros) -> str:
    if token.revoked_at is not None:
        return f"revoked {relative_time(now, token.revoked_at)}"
    if token.expires_at is None:
        return "active"
    verb = "expires" if token.is_valid(now) else "expired"
    return f"{verb} {relative_time(now, token.expires_at)}"


@group.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id, see `detent token list`.")],
    actor: ActorOptions,
    connection: ConnectionOptions,
) -> None:
    """Revoke a token; this cannot be undone."""
    now, token = connection.run_with_time(lambda engine: engine.tokens.revoke(token_id, actor.scope()))
    connection.print_result(token_view(token, now), f"{token.id} of {token.person} revoked")
