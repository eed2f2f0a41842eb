"""Sources of job ids (UUIDv7), lease tokens and secrets. No other module may draw random numbers."""

import os
import random
import secrets
import time
from base64 import b32encode
from contextlib import suppress

_TAILS = 64
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""First hex digit -> the same digit with its upper two bits set to the UUID variant."""


class RandomIds:
    """Ids of one process: job ids are strictly increasing, tokens are unguessable, both are safe after a fork."""

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
        """80 random bits in 16 characters that are safe in names, URLs and command lines."""
        return b32encode(os.urandom(10)).decode().lower()

    def _tail(self) -> str:
        """16 random hex digits, drawn in bulk. `pop` is atomic, so that no two threads get the same."""
        while True:
            with suppress(IndexError):
                return self._tails.pop()
            digits = os.urandom(8 * _TAILS).hex()
            self._tails.extend(digits[n : n + 16] for n in range(0, len(digits), 16))


def seeded_random(seed: object) -> random.Random:
    """A generator with the same numbers for the same seed in every process; for tests and proofs, never for tokens."""
    return random.Random(repr(seed))


class SeededIds:
    """Ids that repeat with their seed: ordered and unique within one run."""

    def __init__(self, seed: object) -> None:
        self._random = seeded_random(seed)
        self._last = 0

    def job(self) -> str:
        self._last += 1
        text = f"{self._last:012x}7{self._random.getrandbits(76) | 1 << 75:019x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self) -> str:
        return f"{self._random.getrandbits(96):024x}"


def new_secret() -> str:
    """A secret of 256 random bits, for access tokens."""
    return secrets.token_urlsafe(32)
