"""The dashboard: server-rendered shell pages and static files."""
