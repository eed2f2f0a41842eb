"""The tasks of the shop, with Django's own decorator."""

from typing import Any

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from django.utils.functional import SimpleLazyObject

from .models import Order

NOT_READY = SimpleLazyObject(lambda: 1 / 0)  # looking for tasks must not evaluate it


@task()
def ship(number: int) -> int:
    Order.objects.filter(number=number).update(shipped=True)
    return number


@task()
async def count_orders() -> int:
    return await Order.objects.acount()


@task(takes_context=True)
def attempt(context: Any) -> int:
    return context.attempt


@task()
def fails() -> None:
    raise Order.DoesNotExist("no such order")
