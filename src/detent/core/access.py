"""Access control: the scope of an act, who counts as another person, roles, powers, and stored tokens.

Tokens hold a digest instead of the secret.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Literal, NamedTuple
from unicodedata import category, normalize

from .errors import ScopeViolation
from .job import Micros
from .times import DAY

EXPIRES_DAYS = 90
"""After how many days the token of a person expires by default."""
WARNED: Micros = 14 * DAY
"""How long before its end a token is shown as about to expire."""
NEVER: Literal["never"] = "never"
SERVER_OPERATOR = "operator of the server"
"""Who else knows the secret of a token that was created with nothing but access to the database."""


class Signer(NamedTuple):
    """The person under whose name an act was made, and who else may have made it.

    shared_with: people who know the secret that proved the name; None: the name was typed, so it may be anybody.
    """

    person: str
    shared_with: tuple[str, ...] | None = ()

    @property
    def candidates(self) -> frozenset[str] | None:
        """The folded names of all who may have acted; None: anybody."""
        return None if self.shared_with is None else frozenset(map(same_person, (self.person, *self.shared_with)))

    def is_surer_than(self, other: "Signer") -> bool:
        """True if this name is proven and the other one is not, or is the same name with more people behind it."""
        mine, others = self.candidates, other.candidates
        if mine is None or others is None:
            return mine is not None
        return mine < others and same_person(self.person) == same_person(other.person)


def count_people(signers: Iterable[Signer]) -> int:
    """How many different people must have signed. Two signers whom one person may stand behind count once.

    A person may be behind their own name, and behind every token that they created for another name, until its owner
    rotates it. Signers whose name is not proven count only if there are no others, and then as one person.
    """
    signatures = [signer.candidates for signer in signers]
    counted: frozenset[str] = frozenset()
    number = 0
    for names in sorted((names for names in signatures if names is not None), key=len):
        if counted.isdisjoint(names):
            counted |= names
            number += 1
    return number or min(1, len(signatures))


def reason_for_doubt(first: Signer, second: Signer) -> str:
    """Why two signers may be one person, and what to do about it."""
    if same_person(first.person) == same_person(second.person):
        return f"{second.person} is the same person"
    doubtful = second if second.shared_with is None or (second.shared_with and first.shared_with == ()) else first
    person, others = doubtful
    if others is None:
        return f"the name {person} is not proven; use that person's token ($DETENT_TOKEN, --token-file, dashboard)"
    known = f"the token of {person} is also known to {', '.join(others)}"
    return f"{known}; {person} must replace it with `detent token rotate` first"


@dataclass(frozen=True, slots=True)
class Scope:
    """Who acts and why, for the logs. With a tenant, the act is refused for jobs of other tenants.

    await engine.jobs.cancel(job_id, Scope("ann", "ordered twice"))
    """

    actor: str
    reason: str | None = None
    tenant: str | None = None
    shared_with: tuple[str, ...] | None = ()
    """Who else may have acted under this name, see `Signer`. The default trusts the caller of this code."""

    @property
    def signer(self) -> Signer:
        return Signer(self.actor.strip(), self.shared_with)


def same_person(name: str) -> str:
    """What two names of one person have in common: "Ann", " ann" and "Ａｎｎ" are one person where two are needed.

    Without case, width, invisible characters and outer spaces.
    """
    folded = normalize("NFKC", normalize("NFKC", name).casefold())
    return "".join(character for character in folded if category(character) != "Cf").strip()


@dataclass(frozen=True, slots=True)
class Reach:
    """The queues and job types that a token or an engine is limited to; empty: all."""

    queues: tuple[str, ...] = ()
    job_types: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        return bool(self.queues or self.job_types)

    def includes(self, queue: str, job_type: str) -> bool:
        return (not self.queues or queue in self.queues) and (not self.job_types or job_type in self.job_types)

    def require(self, queue: str, job_type: str) -> None:
        """Raise ScopeViolation if jobs of this queue and type are outside."""
        if not self.includes(queue, job_type):
            self.within_queues({queue})
            self.within_types({job_type})

    def within_queues(self, queues: Iterable[str] | None) -> frozenset[str] | None:
        """The requested queues (None: all that are allowed). Raises ScopeViolation if one is not allowed."""
        return _within(queues, self.queues, "queues")

    def within_types(self, job_types: Iterable[str] | None) -> frozenset[str] | None:
        return _within(job_types, self.job_types, "job types")


EVERYTHING = Reach()


def _within(requested: Iterable[str] | None, allowed: tuple[str, ...], what: str) -> frozenset[str] | None:
    names = None if requested is None else frozenset(requested)
    if not allowed:
        return names
    if names is not None and not names <= set(allowed):
        listed = ", ".join(sorted(names.difference(allowed)))
        raise ScopeViolation(f"this token is limited to the {what} {', '.join(allowed)}; it does not reach {listed}")
    return names or frozenset(allowed)


class Power(StrEnum):
    """A permission that a route requires of its caller."""

    SELF = "self"
    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    WORK = "work"
    REVIEW = "review"
    DISCARD = "discard"
    ADMIN = "admin"


class Role(StrEnum):
    """A role that a token may have."""

    WORKER = "worker"
    PRODUCER = "producer"
    VIEWER = "viewer"
    OPERATOR = "operator"
    REVIEWER = "reviewer"
    ADMIN = "admin"


POWERS: dict[Role, frozenset[Power]] = {
    Role.WORKER: frozenset({Power.SELF, Power.WORK}),
    Role.PRODUCER: frozenset({Power.SELF, Power.SUBMIT}),
    Role.VIEWER: frozenset({Power.SELF, Power.READ}),
    Role.OPERATOR: frozenset({Power.SELF, Power.READ, Power.SUBMIT, Power.OPERATE, Power.WORK, Power.DISCARD}),
    Role.REVIEWER: frozenset({Power.SELF, Power.READ, Power.REVIEW, Power.DISCARD}),
    Role.ADMIN: frozenset(Power),
}
PROGRAMS = frozenset({Role.WORKER, Role.PRODUCER})
"""Roles of programs; their tokens expire only if that is requested."""


def least_roles(power: Power) -> list[str]:
    """The roles with this power, without those that include another one of them."""
    having = [role for role in Role if power in POWERS[role]]
    return [str(role) for role in having if not any(POWERS[other] < POWERS[role] for other in having)]


def implied_roles(role: Role) -> frozenset[str]:
    """This role and every role of people whose powers it includes."""
    return frozenset(str(other) for other in Role if POWERS[other] <= POWERS[role] and other not in PROGRAMS)


def deciding_roles(role: Role, roles: Iterable[str]) -> list[str]:
    """The roles that count in approvals: the person's own `roles`, the role, and the roles included in that one."""
    return sorted({*roles, *implied_roles(role)})


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
    queues: tuple[str, ...] = ()
    """The queues whose jobs this token reaches; empty: all."""
    job_types: tuple[str, ...] = ()
    """The job types that this token reaches; empty: all."""
    shared_with: tuple[str, ...] = ()
    """Who knows the secret besides the owner: its creator and those who know the creator's secret. Empty once the owner
    has rotated the token."""

    @property
    def reach(self) -> Reach:
        return Reach(self.queues, self.job_types)

    def is_valid(self, now: Micros) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def expires_soon(self, now: Micros) -> bool:
        return self.is_valid(now) and self.expires_at is not None and self.expires_at - now <= WARNED


def default_expiry(role: Role, now: Micros) -> Micros | None:
    """When a token of this role expires if nothing else is requested."""
    return None if role in PROGRAMS else now + EXPIRES_DAYS * DAY


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
