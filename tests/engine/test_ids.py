"""Ids and tokens: in order, of the right form, never twice, whichever thread asks."""

import re
from concurrent.futures import ThreadPoolExecutor

from detent.system.ids import RandomIds

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_ids_are_in_order_and_of_version_seven() -> None:
    ids = RandomIds()
    drawn = [ids.job() for _ in range(5_000)]
    assert drawn == sorted(drawn)
    assert all(UUID7.fullmatch(one) for one in drawn)
    assert len({one[19:] for one in drawn}) == len(drawn), "what follows the ordered bits is random"
    assert {one[19] for one in drawn} == set("89ab")


def test_no_two_threads_are_given_the_same() -> None:
    ids = RandomIds()
    with ThreadPoolExecutor(8) as threads:
        drawn = [one for many in threads.map(lambda _: [ids.job() for _ in range(2_000)], range(8)) for one in many]
    assert len({one[19:] for one in drawn}) == len(drawn) == 16_000


def test_tokens_have_80_bits() -> None:
    ids = RandomIds()
    assert len({ids.token() for _ in range(1_000)}) == 1_000
    assert re.fullmatch("[a-z2-7]{16}", ids.token())
