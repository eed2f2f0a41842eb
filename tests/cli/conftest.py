"""The `cli` fixture."""

from support.cli.console import cli

__all__ = ["cli"]
