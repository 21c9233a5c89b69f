"""Which clients of a cohort are trained by one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from smartfl.clients.batched import padded_batch
from smartfl.executors.bench import Bundle, TrainTask


def bundled(
    tasks: Sequence[TrainTask], samples: Sequence[int], together: Sequence[int], batch_size: int
) -> list[Bundle]:
    """The tasks, whose clients have ``samples`` each, as bundles of at most ``together[group]``; the longest first.

    Where that is 0 every client is a bundle.  Members of a bundle have the same architecture and the same padded batch,
    and similar numbers of samples.  That is a matter of the cohort alone, never of the number of workers.
    """

    def kind(item: tuple[TrainTask, int]) -> tuple[int, int]:
        task, size = item
        return task.group, padded_batch(size, batch_size) if together[task.group] else 0

    items = sorted(zip(tasks, samples, strict=True), key=lambda item: (kind(item), -item[1], item[0].client))
    bundles: list[tuple[int, Bundle]] = []
    for (group, _), same in groupby(items, kind):
        whole = list(same)
        # An even number of equal bundles leaves none of two, or of any power of two, workers idle for long.
        parts = min(len(whole), 2 * -(-len(whole) // (2 * max(1, together[group]))))
        for number in range(parts):
            part = whole[number * len(whole) // parts : (number + 1) * len(whole) // parts]
            bundles.append((sum(size for _, size in part), tuple(task for task, _ in part)))
    bundles.sort(key=lambda bundle: -bundle[0])
    return [bundle for _, bundle in bundles]
