"""Stands for a payment service that understands idempotency keys: it charges once for a key."""


def pay(order_id: int, amount: int, *, idempotency_key: str) -> str:
    return f"receipt {order_id} over {amount}"
