"""The gradient in p against autograd through Σ p_i w_i and against finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from smartfl.aggregators.hull import Hull
from smartfl.flat import FlatSpec
from smartfl.models.logistic import Logistic
from smartfl.types import Updates


def network():
    """A small convolutional net with BatchNorm after a convolution and after a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 5),
        nn.BatchNorm1d(5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


@pytest.fixture
def setting():
    """Five clients of the network in float64, sixteen labelled samples, and a point inside the simplex."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = network().double()
    generator = torch.Generator().manual_seed(1)
    spec = FlatSpec.of(model)
    rows = spec.flatten(model) + 0.5 * torch.randn(5, spec.size, generator=generator, dtype=torch.float64)
    for where in spec.variances:
        rows[:, where] = rows[:, where].abs() + 0.2
    inputs = torch.randn(16, 1, 6, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (16,), generator=generator)
    p = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15], dtype=torch.float64)
    return model, Updates.of(rows, spec=spec), inputs, labels, p


def statistics_aware(model, named, inputs):
    """The network in eval mode, BatchNorm written out: PyTorch's own layer has no gradient in its statistics."""
    x = inputs
    for i, layer in enumerate(model):
        mine = {k.removeprefix(f"{i}."): v for k, v in named.items() if k.startswith(f"{i}.")}
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            shape = (1, -1, 1, 1) if x.ndim == 4 else (1, -1)
            mean, var, weight, bias = (mine[k].view(shape) for k in ("running_mean", "running_var", "weight", "bias"))
            x = (x - mean) / (var + layer.eps).sqrt() * weight + bias
        else:
            x = functional_call(layer, mine, (x,))
    return x


def autograd_oracle(model, updates, inputs, labels, p):
    """∂/∂p of the loss by one graph over all clients' tensors, mixed name by name."""
    p = p.clone().requires_grad_()
    stacked = [updates.spec.unflatten(row) for row in updates.matrix]
    named = {k: sum(p[i] * client[k] for i, client in enumerate(stacked)) for k in stacked[0]}
    loss = F.cross_entropy(statistics_aware(model, named, inputs), labels)
    loss.backward()
    return loss.item(), p.grad


def test_the_manual_gradient_equals_autograd(setting):
    model, updates, inputs, labels, p = setting
    hull = Hull(updates, model, inputs)
    index = torch.tensor([3, 0, 7, 12, 5])
    value, g = hull.gradient(p, index, lambda logits, where: F.cross_entropy(logits, labels[where]))
    expected, oracle = autograd_oracle(model, updates, inputs[index], labels[index], p)
    assert value == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(g, oracle, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["mixed", "moments"])
def test_finite_differences_along_tangent_directions(setting, mode):
    """1.5: (L(p + hv) − L(p − hv)) / 2h = ⟨g, v⟩ for Σv = 0, to 1e-4 relative."""
    model, updates, inputs, labels, p = setting
    hull = Hull(updates, model, inputs, mode)
    everything = torch.arange(16)
    _, g = hull.gradient(p, everything, lambda logits, index: F.cross_entropy(logits, labels[index]))
    generator = torch.Generator().manual_seed(4)
    for _ in range(5):
        v = torch.randn(5, generator=generator, dtype=torch.float64)
        v -= v.mean()
        h = 1e-7  # small, so that no ReLU changes sides
        up, down = (F.cross_entropy(hull.logits(p + s * h * v), labels).item() for s in (1, -1))
        assert (up - down) / (2 * h) == pytest.approx(float(g @ v), rel=1e-4, abs=1e-7)


def test_logits_are_those_of_the_mixed_module_in_eval_mode(setting):
    model, updates, inputs, _, p = setting
    hull = Hull(updates, model, inputs)
    other = network().double().eval()
    updates.spec.load(other, updates.mix(p))
    torch.testing.assert_close(hull.logits(p), other(inputs), rtol=1e-9, atol=1e-12)
    assert torch.equal(hull.mix(p), updates.mix(p))


def test_the_module_itself_is_left_alone(setting):
    model, updates, inputs, labels, p = setting
    model.train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    hull = Hull(updates, model, inputs)
    hull.gradient(p, torch.arange(4), lambda logits, index: F.cross_entropy(logits, labels[index]))
    hull.logits(p)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_linear_fast_path_equals_the_general_one():
    generator = torch.Generator().manual_seed(0)
    fast = Logistic(4, 3).double()
    general = Logistic(4, 3).double()
    general.linear_in_parameters = False
    spec = FlatSpec.of(fast)
    updates = Updates.of(torch.randn(6, spec.size, generator=generator, dtype=torch.float64), spec=spec)
    inputs = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (20,), generator=generator)
    p = torch.softmax(torch.randn(6, generator=generator, dtype=torch.float64), 0)
    one, two = Hull(updates, fast, inputs), Hull(updates, general, inputs)
    assert one.vertices is not None
    assert two.vertices is None
    torch.testing.assert_close(one.logits(p), two.logits(p))
    index = torch.tensor([1, 19, 4])
    (a, g), (b, h) = (
        hull.gradient(p, index, lambda logits, where: F.cross_entropy(logits, labels[where])) for hull in (one, two)
    )
    assert a == pytest.approx(b, rel=1e-12)
    torch.testing.assert_close(g, h)
    assert torch.equal(one.mix(p), two.mix(p))


def test_gradients_come_as_float64_from_float32_models(world):
    w = world(batchnorm=True)
    hull = Hull(w.updates, w.model, w.proxy.inputs)
    labels = w.proxy.labels
    _, g = hull.gradient(w.updates.weights, torch.arange(8), lambda z, index: F.cross_entropy(z, labels[index]))
    assert (g.dtype, g.shape) == (torch.float64, (4,))


def test_logits_are_computed_once_for_every_p(setting):
    model, updates, inputs, _, p = setting
    hull, passes = Hull(updates, model, inputs), []
    hull.model.module.register_forward_pre_hook(lambda _, batch: passes.append(len(batch[0])))
    other = p[[0, 1, 2, 4, 3]]
    first, second, again = (hull.logits(weights).clone() for weights in (p, other, p.clone()))
    assert passes == [16, 16]
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def same_face(updates, model, inputs, labels, p, mode="mixed"):
    """The hull of clients 0, 1 and 4 taken out of a hull that was used before, beside one that never had others."""
    hull = Hull(updates, model, inputs, mode)
    for weights in filter(lambda w: w is not None, (p, hull.by_class(p))):  # some of it is kept
        hull.logits(weights)
    hull.logit_scale()
    where = torch.tensor([0, 1, 4])
    some, q = updates.select(where), p[where] / p[where].sum()
    face, other = hull.among(where, some), Hull(some, model, inputs, mode)
    index = torch.arange(5)
    for weights in filter(lambda w: w is not None, (q, other.by_layer(q), other.by_class(q))):
        torch.testing.assert_close(face.logits(weights), other.logits(weights))
        (a, g), (b, h) = (
            some.gradient(weights, index, lambda z, at: F.cross_entropy(z, labels[at])) for some in (face, other)
        )
        assert a == pytest.approx(b)
        torch.testing.assert_close(g, h)
    assert face.logit_scale() == other.logit_scale() != hull.logit_scale()


@pytest.mark.parametrize("mode", ["mixed", "moments", "reestimate"])
def test_a_face_is_the_hull_of_some_clients(setting, mode):
    model, updates, inputs, labels, p = setting
    same_face(updates, model, inputs, labels, p, mode)


def test_a_face_of_a_linear_model(setting):
    generator = torch.Generator().manual_seed(0)
    model, (*_, labels, p) = Logistic(4, 3).double(), setting
    spec = FlatSpec.of(model)
    updates = Updates.of(torch.randn(5, spec.size, generator=generator, dtype=torch.float64), spec=spec)
    same_face(updates, model, torch.randn(16, 4, generator=generator, dtype=torch.float64), labels, p)


def test_a_face_does_not_take_the_logits_of_the_hull_for_its_own(setting):
    """The same weights of the same number of clients, in another order."""
    model, updates, inputs, _, p = setting
    hull, order = Hull(updates, model, inputs), torch.arange(4, -1, -1)
    face = hull.among(order, Updates.of(updates.matrix[order], spec=updates.spec))
    other = hull.logits(p).clone()
    torch.testing.assert_close(face.logits(p), hull.logits(p.flip(0)))
    assert not torch.allclose(face.logits(p), other)


@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float16])
def test_moments_of_rows_in_half_precision_are_those_of_the_same_rows_in_float32(setting, storage):
    """Means of about 8, whose squares bfloat16 rounds to a multiple of ½, beside variances of about 0.2."""
    model, updates, inputs, labels, p = setting
    rows = updates.matrix.clone()
    for entry in updates.spec.buffers:
        if entry.name.endswith("running_mean"):
            rows[:, entry.start : entry.stop] += 8
    stored = Updates.of(rows.to(storage), spec=updates.spec)
    half, full = (
        Hull(u, model.float(), inputs.float(), "moments") for u in (stored, stored.with_matrix(stored.matrix.float()))
    )
    everything = torch.arange(16)
    for weights in (p, half.by_layer(p)):
        torch.testing.assert_close(half.mix(weights), full.mix(weights), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(half.logits(weights), full.logits(weights), rtol=1e-3, atol=1e-4)
        (_, g), (_, h) = (
            hull.gradient(weights, everything, lambda z, at: F.cross_entropy(z, labels[at])) for hull in (half, full)
        )
        torch.testing.assert_close(g, h, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(half.opinions([0, 3]), full.opinions([0, 3]), rtol=1e-3, atol=1e-4)
