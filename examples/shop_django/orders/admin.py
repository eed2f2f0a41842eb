"""Orders and reports in the admin, beside Detent's jobs."""

from django.contrib import admin

from .models import Order, Report

admin.site.register([Order, Report])
