"""JSON responses that keep their value, so that an Idempotency-Key can store it without the views in it."""

import json
from typing import Any

from starlette.responses import Response

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=str).encode


class JsonResponse(Response):
    """The value is not validated again against the response model."""

    media_type = "application/json"

    def __init__(
        self, value: Any, status: int = 200, headers: dict[str, str] | None = None, media_type: str | None = None
    ) -> None:
        self.value = value
        super().__init__(_encode(value).encode("utf-8", "backslashreplace"), status, headers, media_type)
