"""The tables: orders and reports."""

from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    amount = models.IntegerField()
    status = models.CharField(max_length=20, default="new")
    receipt = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)


class Report(models.Model):
    day = models.DateField(unique=True)
    orders = models.IntegerField()
    amount = models.IntegerField()
