"""Fresh names: time-ordered job ids (UUIDv7) and lease tokens, and the only place that draws random numbers."""

import os
import random
import secrets
import time
from contextlib import suppress

_TAILS = 64
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The variant's two bits in front of two random ones."""


class RandomIds:
    """Ids of one process: strictly increasing, unguessable enough to be tokens, safe after a fork."""

    def __init__(self) -> None:
        self._reseed()
        os.register_at_fork(after_in_child=self._reseed)

    def _reseed(self) -> None:
        self._last = 0
        self._tails: list[str] = []

    def job(self) -> str:
        """A UUIDv7 whose 60 ordered bits never repeat or run backwards within the process."""
        self._last = stamp = max((time.time_ns() // 1_000_000) << 12, self._last + 1)
        tail = self._tail()
        ordered = f"{stamp:015x}"
        return f"{ordered[:8]}-{ordered[8:12]}-7{ordered[12:]}-{_VARIANT[tail[0]]}{tail[1:4]}-{tail[4:]}"

    def token(self) -> str:
        return os.urandom(12).hex()

    def _tail(self) -> str:
        """16 digits, drawn from the system many at a time; popped, so that no two threads are given the same."""
        while True:
            with suppress(IndexError):
                return self._tails.pop()
            drawn = os.urandom(8 * _TAILS).hex()
            self._tails.extend(drawn[n : n + 16] for n in range(0, len(drawn), 16))


def seeded(seed: object) -> random.Random:
    """A source that draws the same numbers for the same seed, in every process; for proofs, never for tokens."""
    return random.Random(repr(seed))


class SeededIds:
    """Ids that repeat with their seed: in order, readable, unique within one run."""

    def __init__(self, seed: object) -> None:
        self._random = seeded(seed)
        self._last = 0

    def job(self) -> str:
        self._last += 1
        text = f"{self._last:012x}7{self._random.getrandbits(76) | 1 << 75:019x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self) -> str:
        return f"{self._random.getrandbits(96):024x}"


def secret() -> str:
    """256 bits nobody can guess, for people to carry."""
    return secrets.token_urlsafe(32)
