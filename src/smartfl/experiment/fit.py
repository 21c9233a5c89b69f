"""Do dataset, models, attack and augmentation fit together?  Asked before a run leaves anything behind."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from smartfl.attacks.base import Attack
from smartfl.data.dataset import Dataset, Dense
from smartfl.errors import UserError
from smartfl.experiment.schema import Experiment
from smartfl.registry import located, parameters
from smartfl.rng import seeded, torch_stream


def check_fit(
    experiment: Experiment, dataset: Dataset, models: Sequence[nn.Module], attack: Attack | None, device: str = "cpu"
) -> None:
    """Pass two samples through everything that a client would pass them through.

    A worker would find the same mistakes in round 1, but as a failure of a client in a run that exists already.
    """
    if experiment.data.augment and not (isinstance(dataset.train, Dense) and len(dataset.shape) == 3):
        raise UserError(
            f"data.augment = true crops and flips images (C, H, W), but samples of '{experiment.data.dataset}' have "
            f"shape {dataset.shape}"
        )
    few = torch.arange(min(2, len(dataset.train_labels)))
    batch = dataset.train[few].to(device)
    with seeded(experiment.seed, "fit"), torch.no_grad():
        for named, model in zip(experiment.model, models, strict=True):
            _check_model(named.name, model.eval(), batch, dataset.num_classes)
    if attack is not None:
        stream = torch_stream(experiment.seed, "fit")
        try:
            attack.poison_data(dataset.train.take(few), dataset.train_labels[few], dataset.num_classes, stream)
        except UserError as error:
            raise located(error, "attack", parameters(type(attack))) from error


def _check_model(name: str, model: nn.Module, batch: Tensor, num_classes: int) -> None:
    shape = tuple(batch.shape[1:])
    try:
        logits = model(batch)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"model.name = '{name}' does not accept samples of shape {shape}: {reason}") from error
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (len(batch), num_classes):
        raise UserError(
            f"model.name = '{name}' must return logits of shape {(len(batch), num_classes)} for {len(batch)} samples "
            f"of {num_classes} classes, got {found}"
        )
