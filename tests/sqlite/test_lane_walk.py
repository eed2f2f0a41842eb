"""Which lanes a claim looks at: those of the worker's own groups, without walking over hundreds of others."""

from random import Random

from detent.stores.lanes import LaneCache, group_of, lane, lanes_by_rank, party_of, rank_of

HOPS = 8


class LoggedWalk:
    """The lanes with claimable jobs, a few per call, as the query `walk_lanes` returns them."""

    def __init__(self, lanes: list[int]) -> None:
        self.lanes = sorted(set(lanes))
        self.calls = 0

    def __call__(self, start: int) -> list[int]:
        self.calls += 1
        return [value for value in self.lanes if value >= start][:HOPS]


def test_the_walk_returns_the_open_lanes_of_the_own_groups_after_the_cursor() -> None:
    for seed in range(300):
        random = Random(seed)
        lanes = [
            lane(random.randrange(98, 101), random.randrange(1, 40), random.randrange(4))
            for _ in range(random.randrange(60))
        ]
        groups = dict.fromkeys(random.sample(range(1, 40), random.randint(1, 20)), "standard")
        cursors = {rank: lane(100 - rank, random.randrange(40), random.randrange(4)) for rank in range(2)}
        lane_cache = LaneCache(cursors=cursors, paused_parties={3})
        expected = [value for value in sorted(set(lanes)) if group_of(value) in groups and party_of(value) != 3]
        found = list(lanes_by_rank(LoggedWalk(lanes), groups, lane_cache, 1_000))
        assert sorted(value for of_rank in found for value in of_rank) == expected
        assert [rank_of(of_rank[0]) for of_rank in found] == sorted({rank_of(value) for value in expected})
        for of_rank in found:
            cursor = cursors.get(rank_of(of_rank[0]), -1)
            assert of_rank == sorted(of_rank, key=lambda value: (value <= cursor, value))


def test_lanes_of_other_queues_cost_no_walk_each() -> None:
    """With 500 queues that have jobs, a claim for two of them once made 1,004 calls of eight lanes each."""
    others = [lane(50, group, 1) for group in range(1, 501)]
    walk = LoggedWalk([*others, lane(50, 600, 1), lane(50, 700, 1)])
    assert list(lanes_by_rank(walk, {600: "standard", 700: "standard"}, LaneCache(), 10)) == [
        [lane(50, 600, 1), lane(50, 700, 1)]
    ]
    assert walk.calls <= 10
