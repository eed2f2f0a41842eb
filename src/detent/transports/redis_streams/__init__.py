"""Redis or Valkey Streams as the wire."""

from .transport import RedisWire

__all__ = ["RedisWire"]
