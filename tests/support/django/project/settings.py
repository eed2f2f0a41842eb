"""Settings of the test project. $PROJECT_DATABASE is the URL of its Postgres database."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

_url = urlsplit(os.environ["PROJECT_DATABASE"])
SECRET_KEY = "for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "detent.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname or parse_qs(_url.query).get("host", [""])[0],
        "PORT": str(_url.port or ""),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DETENT_DASHBOARD_URL = "http://127.0.0.1:8400"
TASKS = {
    "default": {
        "BACKEND": "detent.integrations.django.backend.DetentBackend",
        "QUEUES": [],
        "OPTIONS": {"job": {"max_retries": 0}},
    }
}
