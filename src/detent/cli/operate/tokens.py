"""`detent token`: who may use the API. create, list, revoke."""

from typing import Annotated

import typer

from detent.cli.connection import on_engine
from detent.cli.options import Actor, AsJson, Url, actor_or_user, option
from detent.cli.output import say, say_json, show_table, tell, when
from detent.core.access import Role, Token
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.control.access import create_token, list_tokens, revoke_token, token_view

group = typer.Typer(help="Make and revoke tokens of the API.", no_args_is_help=True)


@group.command("create")
def create(
    name: Annotated[str, option("--name", "The person; one may have several tokens, and counts once.")],
    role: Annotated[Role, option("--role", "What the token may do.")],
    acts_as: Annotated[
        list[str] | None, option("--as", "A role among people, for approvals that ask for it; may be repeated.")
    ] = None,
    tenant: Annotated[str | None, option("--tenant", "Bind it to this tenant.")] = None,
    no_payloads: Annotated[bool, option("--no-payloads", "Show it no payloads, results nor error texts.")] = False,
    expires_days: Annotated[float | None, option("--expires-days", "Good for so many days; default: no end.")] = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown now and never again: only a digest is kept."""
    who = actor_or_user(actor)

    async def act(engine: Engine) -> tuple[Micros, Token, str]:
        kept, shown = await create_token(
            engine,
            name,
            role,
            actor=who,
            tenant=tenant,
            payloads=not no_payloads,
            expires_days=expires_days,
            roles=acts_as or (),
        )
        return engine.store.now(), kept, shown

    now, kept, shown = on_engine(url, act)
    tell(as_json, {"token": shown, **token_view(kept, now)}, shown, f"{kept.role} token of {kept.person}; keep it safe")


@group.command("list")
def list_them(url: Url = None, as_json: AsJson = False) -> None:
    """List tokens, without their secrets."""

    async def act(engine: Engine) -> tuple[Micros, list[Token]]:
        return engine.store.now(), await list_tokens(engine)

    now, found = on_engine(url, act)
    if as_json:
        say_json({"tokens": [token_view(token, now) for token in found]})
        return
    if not found:
        say("no tokens; `detent token create --name YOU --role admin` makes one")
        return
    show_table(
        ("id", "name", "role", "tenant", "payloads", "made", "good"),
        [
            [
                token.id,
                token.person,
                token.role,
                token.tenant_id or "every",
                "yes" if token.payloads else "no",
                when(now, token.created_at),
                _good(token, now),
            ]
            for token in found
        ],
    )


def _good(token: Token, now: Micros) -> str:
    if token.revoked_at is not None:
        return f"revoked {when(now, token.revoked_at)}"
    if token.expires_at is None:
        return "yes"
    return f"expires {when(now, token.expires_at)}" if token.stands(now) else f"expired {when(now, token.expires_at)}"


@group.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id, as in the list.")],
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """End a token for good."""

    async def act(engine: Engine) -> tuple[Micros, Token]:
        return engine.store.now(), await revoke_token(engine, token_id, actor=actor_or_user(actor))

    now, token = on_engine(url, act)
    tell(as_json, token_view(token, now), f"{token.id} of {token.person} is revoked")
