"""The files of the site that are written from the code when it is built, by name."""

from collections.abc import Callable

from . import reference_cli, reference_python, reference_rest, reference_tables

PAGES: dict[str, Callable[[], str]] = {
    "reference/python.md": reference_python.page,
    "reference/commands.md": reference_cli.page,
    "reference/operations.md": reference_rest.page,
    "reference/settings.md": reference_tables.settings_page,
    "reference/events.md": reference_tables.events_page,
    "reference/metrics.md": reference_tables.metrics_page,
    "reference/sql-schema.md": reference_tables.schema_page,
}


def files() -> dict[str, str]:
    """Name -> text of all generated pages."""
    return {name: page() for name, page in PAGES.items()}
