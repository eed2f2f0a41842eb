"""Redis Streams: the orchestrator, and the worker that reads tasks from a stream."""
