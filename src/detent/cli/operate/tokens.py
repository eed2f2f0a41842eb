"""`detent token`: creates, rotates, lists and revokes API tokens."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from detent.cli.option_groups import ActorOptions, CommandGroup, ConnectionOptions, TokenOptions
from detent.cli.options import option, system_user
from detent.cli.output import list_view, relative_time
from detent.core.access import NEVER, SERVER_OPERATOR, Role, Token
from detent.core.job import Micros
from detent.engine.control.access import token_view

group = CommandGroup(help="Create, rotate, list and revoke API tokens.", no_args_is_help=True)


@group.command("create")
def create(
    name: Annotated[str, option("The person or program; several tokens of a person count as one in approvals.")],
    role: Annotated[Role, option("The permissions of the token.")],
    acts_as: Annotated[
        list[str] | None, option("A role for approvals that require roles; may be repeated.", name="--as")
    ] = None,
    tenant: Annotated[str | None, option("Restrict the token to this tenant.")] = None,
    queues: Annotated[str | None, option("Restrict the token to these queues, separated by commas.")] = None,
    types: Annotated[str | None, option("Restrict the token to these job types, separated by commas.")] = None,
    no_payloads: Annotated[bool, option("Hide payloads, results and error messages.")] = False,
    expires: Annotated[
        str | None, option("Days until the token expires, or never; default: 90, for workers and producers never.")
    ] = None,
    *,
    actor: ActorOptions,
    connection: ConnectionOptions,
) -> None:
    """Create a token. It is printed once: only a digest is stored.

    Until its owner has replaced it with `detent token rotate`, it does not count as a second person beside its creator.
    """
    limits: dict[str, Any] = {
        "tenant": tenant,
        "payloads": not no_payloads,
        "expires_days": _days(expires),
        "queues": _names(queues),
        "job_types": _names(types),
    }
    scope = replace(actor.scope(), shared_with=(system_user(), SERVER_OPERATOR))
    now, (token, secret) = connection.run_with_time(
        lambda engine: engine.tokens.create(name, role, scope, **limits, roles=acts_as or ())
    )
    end = f", expires {relative_time(now, token.expires_at)}" if token.expires_at is not None else ""
    note = f"{token.role} token of {token.person}{end}; store it now, it is not shown again"
    connection.print_result({"token": secret, **token_view(token, now)}, secret, note)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _days(text: str | None) -> float | Literal["never"] | None:
    if text is None or text == NEVER:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter("--expires takes a number of days, or never") from None


@group.command("rotate")
def rotate(token: TokenOptions, connection: ConnectionOptions) -> None:
    """Replace your token by one that nobody else knows; the old one stops working. The new one is printed once."""
    secret = token.secret
    if secret is None:
        raise typer.BadParameter("give the token to replace: $DETENT_TOKEN or --token-file")
    now, (new, new_secret) = connection.run_with_time(lambda engine: engine.tokens.rotate(secret))
    note = f"new token of {new.person}; store it now, it is not shown again. The old one stopped working"
    connection.print_result({"token": new_secret, **token_view(new, now)}, new_secret, note)


@group.command("list")
def list_tokens(connection: ConnectionOptions) -> None:
    """List tokens without their secrets."""
    now, tokens = connection.run_with_time(lambda engine: engine.tokens.list())
    columns = ("id", "name", "role", "tenant", "queues", "types", "payloads", "created", "rotated", "status")
    empty = "No tokens. Create one with `detent token create --name YOU --role admin`."
    view = list_view(token_view(token, now) for token in tokens)
    connection.print_list(view, columns, (_row(token, now) for token in tokens), empty)


def _row(token: Token, now: Micros) -> list[str]:
    limits = [token.tenant_id or "all", ", ".join(token.queues) or "all", ", ".join(token.job_types) or "all"]
    payloads, created = "visible" if token.payloads else "hidden", relative_time(now, token.created_at)
    rotated = "no" if token.shared_with else "yes"
    return [token.id, token.person, token.role, *limits, payloads, created, rotated, _status(token, now)]


def _status(token: Token, now: Micros) -> str:
    if token.revoked_at is not None:
        return f"revoked {relative_time(now, token.revoked_at)}"
    if token.expires_at is None:
        return "active"
    verb = "expires" if token.is_valid(now) else "expired"
    soon = "; create a new one" if token.expires_soon(now) else ""
    return f"{verb} {relative_time(now, token.expires_at)}{soon}"


@group.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id, see `detent token list`.")],
    actor: ActorOptions,
    connection: ConnectionOptions,
) -> None:
    """Revoke a token; this cannot be undone."""
    now, token = connection.run_with_time(lambda engine: engine.tokens.revoke(token_id, actor.scope()))
    connection.print_result(token_view(token, now), f"{token.id} of {token.person} revoked")
