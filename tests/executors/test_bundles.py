"""Who is trained with whom depends on the cohort alone."""

from __future__ import annotations

import random

from smartfl.executors.bench import TrainTask, described
from smartfl.executors.bundles import bundled


def task(client, group=0):
    return TrainTask(slot=client, client=client, group=group, offset=0, round=3, malicious=0)


def clients(bundles):
    return [[task.client for task in bundle] for bundle in bundles]


def test_equal_padded_batches_come_together_the_longest_bundles_first():
    """Batches of 8: 9 and 30 samples are padded to 8, 3 and 4 to 4, 1 to 1.  At most 2 together, bundles of a kind in
    pairs: (30, 9) is two bundles of one, as is (4, 3); 1, 1, 1 are two of at most 2.
    """
    tasks = [task(i) for i in range(7)]
    found = bundled(tasks, [3, 30, 1, 9, 1, 4, 1], [2], batch_size=8)
    assert clients(found) == [[1], [3], [5], [0], [4, 6], [2]]


def test_bundles_of_a_kind_are_even_in_number_and_size():
    """100 clients of one sample, at most 32 together: 4 bundles of 25."""
    found = bundled([task(i) for i in range(100)], [1] * 100, [32], batch_size=32)
    assert [len(bundle) for bundle in found] == [25] * 4
    assert sorted(client for bundle in clients(found) for client in bundle) == list(range(100))


def test_the_order_of_the_tasks_does_not_matter():
    tasks, sizes = [task(i, i % 2) for i in range(40)], [1 + i * 7 % 50 for i in range(40)]
    expected = bundled(tasks, sizes, [8, 0], batch_size=16)
    pairs = list(zip(tasks, sizes, strict=True))
    random.Random(0).shuffle(pairs)
    found = bundled([t for t, _ in pairs], [s for _, s in pairs], [8, 0], batch_size=16)
    assert sorted(clients(found)) == sorted(clients(expected))
    assert all(len({t.group for t in bundle}) == 1 for bundle in found)
    assert [len(bundle) for bundle in found if bundle[0].group == 1] == [1] * 20
    assert max(len(bundle) for bundle in found) > 1


def test_a_bundle_is_told_by_its_first_client():
    assert described((task(4),)) == "client 4 in round 3"
    assert described((task(4), task(6))) == "client 4 (or one of 1 trained with it) in round 3"
