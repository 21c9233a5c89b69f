"""Which models are trained in bundles, and how many clients a bundle has."""

from __future__ import annotations

from torch import nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.batched import BatchedTrainer, linear_layers
from smartfl.clients.bundle import BundleTrainer
from smartfl.clients.sparse import SparseTrainer
from smartfl.clients.training import Recipe
from smartfl.data.dataset import Dense, Inputs, Sparse

_NUMBERS = 2**18  # parameters of a bundle: with gradient and moments four times 1 MB
_MOST = 32  # clients of a bundle: more no longer saves anything, and leaves workers without work


def bundle_size(model: nn.Module, recipe: Recipe, algorithm: ClientAlgorithm, inputs: Inputs, device: str) -> int:
    """How many clients are trained by one call; 0 where every client is trained for itself.

    A rule and no measurement, so that it is the same on every machine: bundles decide how sums are rounded.
    """
    layers = linear_layers(model)
    # A subclass that changes a hook must say for itself that it is stackable: the word is not inherited.
    if not layers or device != "cpu" or recipe.augment or not vars(type(algorithm)).get("stackable"):
        return 0
    size = sum(p.numel() for p in model.parameters())
    if isinstance(inputs, Sparse) and len(layers) == 1:
        return 4
    if isinstance(inputs, Dense):
        return min(_MOST, max(1, _NUMBERS // size))
    return 0


def bundle_trainer(
    model: nn.Module, recipe: Recipe, algorithm: ClientAlgorithm, inputs: Inputs, device: str
) -> BundleTrainer | None:
    """The trainer of ``bundle_size`` clients at once, if there is one for this model."""
    size = bundle_size(model, recipe, algorithm, inputs, device)
    if size == 0:
        return None
    if isinstance(inputs, Sparse):
        return SparseTrainer(model, recipe, algorithm)
    return BatchedTrainer(model, recipe, algorithm, size)
