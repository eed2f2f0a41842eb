"""Place an order, and see what became of it."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from .models import Order
from .tasks import process_order


@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """The order and its job are committed together."""
    new = json.loads(request.body)
    with transaction.atomic():
        order = Order.objects.create(customer=new["customer"], amount=new["amount"])
        job = process_order.using(key=f"order-{order.pk}")
        handle = job.enqueue_in_sync(connection, order_id=order.pk, amount=order.amount)
    return JsonResponse({"id": order.pk, "job": handle.id}, status=201)


@require_GET
def show_order(request: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, id=order_id)
    return JsonResponse({"id": order.pk, "status": order.status, "receipt": order.receipt})
