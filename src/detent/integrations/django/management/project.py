"""The application that `manage.py detent worker` and `manage.py detent up` load."""

from detent.integrations.django.application import project_app

app = project_app()
