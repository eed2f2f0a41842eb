"""Pydantic models of callers, sessions, tokens and the audit log."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from .schemas import Name, RequestBody, Timestamp


class CallerResponse(BaseModel):
    """The person behind the token and what the token permits."""

    name: str
    role: str = Field(description="viewer, operator, reviewer or admin.")
    tenant: str | None = Field(description="The tenant that the token is bound to; null for all tenants.")
    payloads: bool = Field(description="Whether payloads, results and error messages are shown.")
    open: bool = Field(description="True if this API needs no token, because none was ever created.")
    powers: list[str] = Field(description="What the role permits.")
    roles: list[str] | None = Field(description="Roles that count in approvals; null if unknown.")


class SessionRequest(RequestBody):
    token: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$")]


class SessionResponse(CallerResponse):
    csrf_token: str = Field(description="Send it as X-CSRF-Token with each change made with the cookie.")


class TokenInfo(BaseModel):
    """A token without its secret."""

    id: str
    name: str = Field(description="The person.")
    role: str
    roles: list[str] = Field(description="Further roles that count in approvals.")
    tenant: str | None
    payloads: bool
    valid: bool = Field(description="False if expired or revoked.")
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None
    revoked_at: Timestamp | None


class TokenCreateResponse(TokenInfo):
    token: str = Field(description="The secret. It is not stored and never shown again.")


class TokenList(BaseModel):
    tokens: list[TokenInfo]


class TokenCreateRequest(RequestBody):
    name: Name = Field(description="The person. One person may have several tokens.")
    role: Literal["viewer", "operator", "reviewer", "admin"]
    tenant: Name | None = Field(None, description="Bind the token to this tenant.")
    payloads: bool = Field(True, description="False hides payloads, results and error messages.")
    expires_days: float | None = Field(None, gt=0, le=3_650, description="Null: does not expire.")
    roles: list[Name] = Field([], max_length=50, description="Further roles that count in approvals.")


class AuditEntry(BaseModel):
    """One action of a person."""

    n: int = Field(description="Number of the entry.")
    at: Timestamp
    actor: str = Field(description="The person.")
    act: str = Field(description="The action, like job.cancel.")
    subject: str = Field(description="Id or name of what was changed.")
    tenant_id: str | None
    reason: str | None
    data: dict[str, Any] | None


class AuditList(BaseModel):
    items: list[AuditEntry]
    next_cursor: str | None = Field(description="Null on the last page.")
