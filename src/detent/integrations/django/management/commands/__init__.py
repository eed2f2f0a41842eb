"""Django looks for commands in this package."""
