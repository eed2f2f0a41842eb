"""`manage.py detent …`: the `detent` command line for this Django project, with its tasks and its database."""

import os
import sys

from django.core.management.base import BaseCommand

from detent.cli import run
from detent.integrations.django.application import project_app

_WITH_APP = ("worker", "up")
APP = "detent.integrations.django.management.project"


class Command(BaseCommand):
    help = "Runs a command of Detent for this project: worker, up, migrate, verify, jobs, dlq, … (see `detent --help`)."

    def run_from_argv(self, argv: list[str]) -> None:
        """All arguments are those of the `detent` command, so Django's own options are not parsed."""
        app = project_app()
        os.environ.setdefault("DETENT_URL", app.url)
        os.environ.setdefault("DETENT_APP", f"{APP}:app")
        sys.exit(run(argv[2:]))
