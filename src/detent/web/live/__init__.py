"""Background readers that live updates are served from."""
