"""The stream transport on Redis or Valkey Streams."""
