"""Fresh names: time-ordered job ids (UUIDv7) and lease tokens, and the only place that draws random numbers."""

import os
import random
import time


class RandomIds:
    """Ids of one process: strictly increasing, unguessable enough to be tokens, safe after a fork."""

    def __init__(self) -> None:
        self._reseed()
        os.register_at_fork(after_in_child=self._reseed)

    def _reseed(self) -> None:
        self._random = random.SystemRandom()
        self._last = 0

    def job(self) -> str:
        """A UUIDv7 whose 60 ordered bits never repeat or run backwards within the process."""
        stamp = (time.time_ns() // 1_000_000) << 12
        self._last = stamp = max(stamp, self._last + 1)
        tail = self._random.getrandbits(62)
        value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | tail
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self) -> str:
        return f"{self._random.getrandbits(96):024x}"
