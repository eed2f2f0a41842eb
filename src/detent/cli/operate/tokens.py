"""`detent token`: creates, lists and revokes API tokens."""

from typing import Annotated

import typer

from detent.cli.connection import on_engine
from detent.cli.options import Actor, AsJson, Url, actor_or_user, option
from detent.cli.output import print_json, print_line, print_result, print_table, relative_time
from detent.core.access import Role, Scope, Token
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.control.access import token_view

group = typer.Typer(help="Create, list and revoke API tokens.", no_args_is_help=True)


@group.command("create")
def create(
    name: Annotated[str, option("--name", "The person; several tokens of a person count as one person in approvals.")],
    role: Annotated[Role, option("--role", "The permissions of the token.")],
    acts_as: Annotated[
        list[str] | None, option("--as", "A role for approvals that require roles; may be repeated.")
    ] = None,
    tenant: Annotated[str | None, option("--tenant", "Restrict the token to this tenant.")] = None,
    no_payloads: Annotated[bool, option("--no-payloads", "Hide payloads, results and error messages.")] = False,
    expires_days: Annotated[
        float | None, option("--expires-days", "Days until the token expires; default: never.")
    ] = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Create a token. It is printed once: only a digest is stored."""

    async def act(engine: Engine) -> tuple[Micros, Token, str]:
        token, secret = await engine.tokens.create(
            name,
            role,
            Scope(actor_or_user(actor)),
            tenant=tenant,
            payloads=not no_payloads,
            expires_days=expires_days,
            roles=acts_as or (),
        )
        return engine.store.now(), token, secret

    now, token, secret = on_engine(url, act)
    note = f"{token.role} token of {token.person}; store it now, it is not shown again"
    print_result(as_json, {"token": secret, **token_view(token, now)}, secret, note)


@group.command("list")
def list_command(url: Url = None, as_json: AsJson = False) -> None:
    """List tokens without their secrets."""

    async def act(engine: Engine) -> tuple[Micros, list[Token]]:
        return engine.store.now(), await engine.tokens.list()

    now, tokens = on_engine(url, act)
    if as_json:
        print_json({"tokens": [token_view(token, now) for token in tokens]})
        return
    if not tokens:
        print_line("No tokens. Create one with `detent token create --name YOU --role admin`.")
        return
    print_table(
        ("id", "name", "role", "tenant", "payloads", "created", "status"),
        [
            [
                token.id,
                token.person,
                token.role,
                token.tenant_id or "all",
                "visible" if token.payloads else "hidden",
                relative_time(now, token.created_at),
                _status(token, now),
            ]
            for token in tokens
        ],
    )


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
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token; this cannot be undone."""

    async def act(engine: Engine) -> tuple[Micros, Token]:
        return engine.store.now(), await engine.tokens.revoke(token_id, Scope(actor_or_user(actor)))

    now, token = on_engine(url, act)
    print_result(as_json, token_view(token, now), f"{token.id} of {token.person} revoked")
