"""Stands for a payment service that understands idempotency keys: it charges once for a key."""

_receipts: dict[str, str] = {}


def pay(order_id: int, amount: int, *, idempotency_key: str) -> str:
    return _receipts.setdefault(idempotency_key, f"receipt {order_id} over {amount}")
