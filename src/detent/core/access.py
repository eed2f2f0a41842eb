"""Access control: the scope of an act, roles, powers, and stored tokens, which hold a digest instead of the secret."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from unicodedata import category, normalize

from .job import Micros


@dataclass(frozen=True, slots=True)
class Scope:
    """Who acts and why, for the logs. With a tenant, the act is refused for jobs of other tenants.

    await engine.jobs.cancel(job_id, Scope("ann", "ordered twice"))
    """

    actor: str
    reason: str | None = None
    tenant: str | None = None


def same_person(name: str) -> str:
    """What two names of one person have in common: "Ann", " ann" and "Ａｎｎ" are one person where two are needed.

    Without case, width, invisible characters and outer spaces.
    """
    folded = normalize("NFKC", normalize("NFKC", name).casefold())
    return "".join(character for character in folded if category(character) != "Cf").strip()


class Power(StrEnum):
    """A permission that a route requires of its caller."""

    READ = "read"
    OPERATE = "operate"
    WORK = "work"
    REVIEW = "review"
    DISCARD = "discard"
    ADMIN = "admin"


class Role(StrEnum):
    """A role that a token may have."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    REVIEWER = "reviewer"
    ADMIN = "admin"


POWERS: dict[Role, frozenset[Power]] = {
    Role.VIEWER: frozenset({Power.READ}),
    Role.OPERATOR: frozenset({Power.READ, Power.OPERATE, Power.WORK, Power.DISCARD}),
    Role.REVIEWER: frozenset({Power.READ, Power.REVIEW, Power.DISCARD}),
    Role.ADMIN: frozenset(Power),
}


def implied_roles(role: Role) -> frozenset[str]:
    """This role and every role whose powers it includes."""
    return frozenset(str(other) for other in Role if POWERS[other] <= POWERS[role])


@dataclass(frozen=True, slots=True)
class Token:
    """One row. A person may have several tokens; rules that require two people compare `person`."""

    id: str
    digest: str
    person: str
    role: str
    tenant_id: str | None
    """The tenant this token is bound to; None: all tenants."""
    payloads: bool
    """False: payloads, results, step results and error texts are hidden."""
    created_at: Micros
    created_by: str
    expires_at: Micros | None = None
    revoked_at: Micros | None = None
    roles: tuple[str, ...] = ()
    """The person's organisational roles, as approvals require them."""

    def is_valid(self, now: Micros) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Session:
    """One row: a person who signed in to the dashboard with a token. Both secrets are stored as digests."""

    digest: str
    """Of the cookie."""
    key_digest: str
    """Of the key that the page keeps and sends with the cookie: a cookie alone, which all ports of a host get, opens
    nothing."""
    token_id: str
    created_at: Micros
    expires_at: Micros
    """When it expires unless it is used before."""
    ends_at: Micros
    """When it ends, however much it is used."""

    @property
    def label(self) -> str:
        """By this a page finds the key that belongs to its cookie."""
        return self.digest[:16]


def digest_of(secret: str) -> str:
    """The stored digest of a secret. A secret is 256 random bits, so one round of SHA-256 is enough."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
