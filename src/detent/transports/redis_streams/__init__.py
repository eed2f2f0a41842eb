"""The stream transport on Redis or Valkey Streams."""

from .transport import RedisStreamTransport

__all__ = ["RedisStreamTransport"]
