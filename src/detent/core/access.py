"""Who may do what: roles and their powers, and a token as it is stored. No secret is ever kept, only its digest."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from .job import Micros


class Power(StrEnum):
    """What one route needs of its caller."""

    READ = "read"
    OPERATE = "operate"
    WORK = "work"
    REVIEW = "review"
    DISCARD = "discard"
    ADMIN = "admin"


class Role(StrEnum):
    """What a token may be given."""

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


def reached(role: Role) -> frozenset[str]:
    """A role, and those whose powers it has."""
    return frozenset(str(other) for other in Role if POWERS[other] <= POWERS[role])


@dataclass(frozen=True, slots=True)
class Token:
    """One row. A person may have several; rules that ask for two people compare `person`."""

    id: str
    digest: str
    person: str
    role: str
    tenant_id: str | None
    """Bound to this tenant; None may act for all."""
    payloads: bool
    """False: sees no payloads, results, step results nor error texts."""
    created_at: Micros
    created_by: str
    expires_at: Micros | None = None
    revoked_at: Micros | None = None
    roles: tuple[str, ...] = ()
    """The person's roles among people, as approvals ask for them."""

    def stands(self, now: Micros) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def digest_of(secret: str) -> str:
    """What is kept of a secret. The secret is 256 random bits, so one round is enough."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
