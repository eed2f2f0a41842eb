"""Redis or Valkey Streams as the wire."""

from .transport import RedisStreamTransport

__all__ = ["RedisStreamTransport"]
