"""Sessions of the dashboard: a cookie and a key in exchange for a token. Both are stored as digests only."""

from typing import NamedTuple

from detent.core.access import Scope, Session, Token, digest_of
from detent.core.times import SECOND
from detent.engine.refusal import Refused, audit
from detent.engine.runtime import Service, operators_only, reads, writes
from detent.ports.tx import Tx
from detent.system.ids import new_secret

from .access import Unauthorized, require_valid

_MAX_SESSIONS = 100
_EXTEND_EVERY = 10
"""A use of a session is recorded after a tenth of its idle time at the earliest, so that few requests write."""


class SignedIn(NamedTuple):
    """A new session. `cookie` and `key` are not stored and cannot be shown again."""

    session: Session
    token: Token
    cookie: str
    key: str


class Sessions(Service):
    """`engine.sessions`: who is signed in to the dashboard."""

    @operators_only
    @writes
    async def create(
        self,
        tx: Tx,
        bearer_secret: str,
        *,
        idle_seconds: float,
        seconds: float,
        address: str = "",
        replaces: str = "",
        audit_success: bool = True,
        audit_refusal: bool = True,
    ) -> SignedIn | Refused:
        """Sign in with a token. Raises Unauthorized if it is unknown, expired or revoked.

        replaces: the cookie of an earlier session of this browser, which ends. Of the sessions of one token, the newest
        100 are kept.
        """
        token = await tx.tokens.token_by_digest(digest_of(bearer_secret))
        try:
            token = require_valid(token, tx.now)
        except Unauthorized as error:
            if audit_refusal:
                subject, tenant = (token.id, token.tenant_id) if token else ("unknown token", None)
                await audit(tx, Scope(address or "unknown"), "session.refuse", subject, tenant)
            return Refused(error)
        await tx.sessions.drop_expired_sessions(_MAX_SESSIONS)
        if replaces:
            await tx.sessions.end_session(digest_of(replaces))
        cookie, key = new_secret(), new_secret()
        ends_at = tx.now + int(seconds * SECOND)
        expires_at = min(tx.now + int(idle_seconds * SECOND), ends_at)
        session = Session(digest_of(cookie), digest_of(key), token.id, tx.now, expires_at, ends_at)
        await tx.sessions.put_session(session, _MAX_SESSIONS)
        if audit_success:
            await audit(tx, Scope(token.person), "session.create", token.id, token.tenant_id, {"address": address})
        return SignedIn(session, token, cookie, key)

    @operators_only
    async def use(self, cookie: str, idle_seconds: float) -> tuple[Session, Token]:
        """The session with this cookie and its token; the session expires `idle_seconds` later from now on.

        Raises Unauthorized if the session has ended or expired, or if its token is no longer valid.
        """
        now, session, token = await self._find(digest_of(cookie))
        if session is None or session.expires_at <= now:
            raise Unauthorized("the session has ended; sign in again", code="SESSION_ENDED")
        token = require_valid(token, now)
        idle = int(idle_seconds * SECOND)
        if session.expires_at < min(now + idle - idle // _EXTEND_EVERY, session.ends_at):
            until = min(now + idle, session.ends_at)
            await self._runtime.store.write(lambda tx: tx.sessions.extend_session(session.digest, until))
        return session, token

    @reads
    async def _find(self, tx: Tx, digest: str) -> tuple[int, Session | None, Token | None]:
        session = await tx.sessions.session(digest)
        return tx.now, session, None if session is None else await tx.tokens.token(session.token_id)

    @operators_only
    @writes
    async def end(self, tx: Tx, cookie: str) -> None:
        """End a session. Idempotent."""
        await tx.sessions.end_session(digest_of(cookie))
