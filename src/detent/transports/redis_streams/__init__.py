"""Redis or Valkey Streams as the wire."""

from .streams import RedisWire

__all__ = ["RedisWire"]
