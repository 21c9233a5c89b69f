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

    Members of a bundle have the same architecture and the same padded batch, and similar numbers of samples.  That is
    a matter of the cohort alone, never of the number of workers.
    """
    alone = [(size, (task,)) for task, size in zip(tasks, samples, strict=True) if together[task.group] < 2]
    batched = [(task, size) for task, size in zip(tasks, samples, strict=True) if together[task.group] >= 2]

    def kind(item: tuple[TrainTask, int]) -> tuple[int, int]:
        return item[0].group, padded_batch(item[1], batch_size)

    batched.sort(key=lambda item: (kind(item), -item[1], item[0].client))
    bundles: list[tuple[int, Bundle]] = list(alone)
    for (group, _), same in groupby(batched, kind):
        items = list(same)
        for first in range(0, len(items), together[group]):
            part = items[first : first + together[group]]
            bundles.append((sum(size for _, size in part), tuple(task for task, _ in part)))
    bundles.sort(key=lambda bundle: -bundle[0])
    return [tasks for _, tasks in bundles]
