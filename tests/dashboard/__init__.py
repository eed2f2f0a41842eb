"""The dashboard, driven by a real browser against a real server."""
