"""The Django project: settings, URLs, and the entry points of servers."""
