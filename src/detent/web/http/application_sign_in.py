"""People whom the surrounding application has signed in: its callable maps a request to person, role and tenant."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutinefunction
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from detent.core.access import Role
from detent.core.errors import InvalidInput
from detent.engine.control.access import Forbidden
from detent.engine.submit.submission import check_name

ALL_TENANTS = "*"


class Person(NamedTuple):
    """A person whom the application, or a trusted proxy, has signed in.

    role: viewer, operator, reviewer, admin, ...: what the person may do. tenant: the only tenant that the person sees;
    "*" for all. groups: roles of the person in approvals.
    """

    name: str
    role: Role | str
    tenant: str
    groups: tuple[str, ...] = ()


Authenticate = Callable[[Request], "Person | Awaitable[Person | None] | None"]
"""None, or an HTTPException with status 401: nobody is signed in, so a token or session of Detent is needed."""


async def person_of(authenticate: Authenticate, request: Request) -> Person | None:
    """The person of a request, checked. A plain function runs in a thread, as in FastAPI.

    Raises Forbidden (PERSON_INVALID) if name, role or tenant is missing or unknown.
    """
    is_async = iscoroutinefunction(authenticate) or iscoroutinefunction(getattr(authenticate, "__call__", None))  # noqa: B004
    try:
        answer = authenticate(request) if is_async else await run_in_threadpool(authenticate, request)
        person = await answer if isawaitable(answer) else answer
    except HTTPException as error:
        if error.status_code != 401:
            raise
        return None
    if person is None:
        return None
    try:
        check_name(person.name, "name")
        check_name(person.tenant, "tenant")
        role = Role(person.role)
    except (InvalidInput, ValueError, AttributeError) as error:
        message = f"the application's authenticate() must return a Person with name, role and tenant, or None: {error}"
        raise Forbidden(message, code="PERSON_INVALID") from None
    return Person(person.name, role, person.tenant, tuple(person.groups))
