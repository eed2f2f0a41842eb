"""Pydantic models of dead letters."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from .schemas import Event, Timestamp


class DeadLetter(BaseModel):
    """A job that failed for good, kept until it is requeued or discarded."""

    dlq_id: str
    tenant_id: str
    job_id: str = Field(description="The job that failed.")
    contract: str
    job_type: str
    queue: str
    error_class: str | None
    error_code: str
    error_message: str | None = Field(description="Null if the token may not see payloads.")
    payload_json: Any = Field(description="Null if the token may not see payloads.")
    context_json: Any = Field(description="Null if the token may not see payloads.")
    retry_count: int
    status: Literal["open", "requeued", "discarded"]
    first_failed_at: Timestamp
    created_at: Timestamp
    updated_at: Timestamp
    requeued_as: str | None = Field(description="The job it was requeued as.")
    proposed_by: str | None = Field(description="The person who proposed to discard it.")
    proposed_reason: str | None


class DeadLetterList(BaseModel):
    items: list[DeadLetter]
    next_cursor: str | None = Field(description="Null on the last page.")


class DeadLetterWithHistory(DeadLetter):
    history: list[Event] = Field(description="The log of the job.")
    acts: list[dict[str, Any]] = Field(description="What people did with the dead letter, oldest first.")


class DiscardResponse(BaseModel):
    confirmed: bool = Field(description="False if a second person has to confirm.")
    item: DeadLetter


class DeadLetterBulkResponse(BaseModel):
    dry_run: bool
    matched: int = Field(description="Number of open dead letters that matched.")
    done: int = Field(description="Number that was changed; 0 in a dry run.")
    for_two: int = Field(description="Number that was skipped because a discard needs two people.")
    refused: int = Field(description="Number that was refused.")
    refusals: list[dict[str, Any]] = Field(description="The first 100 refusals: dlq_id, code, message.")
    job_ids: list[str] = Field(description="The new jobs of a requeue.")
