from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smartfl.aggregators.batchnorm import (
    BatchNormMode,
    from_moments,
    has_batchnorm,
    moment_matched,
    reestimate,
    server_model,
    to_moments,
)
from smartfl.flat import FlatSpec
from smartfl.models.resnet import resnet8
from smartfl.models.shufflenet import shufflenet
from smartfl.rng import seeded
from smartfl.types import Updates


class Apart(nn.Module):
    """Convolution and BatchNorm2d as attributes (nothing to fold), then BatchNorm1d without γ and β, then dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn1 = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, eps=1e-3)
        self.bn2, self.drop, self.fc = nn.BatchNorm1d(4, affine=False), nn.Dropout(), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.drop(self.bn2(F.relu(self.bn1(self.conv(x))).mean((2, 3)))))
        return out


def folded() -> nn.Module:
    """Sequences that fold: with bias, without, depthwise, one-dimensional; and one BatchNorm1d that does not."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.Softplus(),
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False, padding_mode="reflect"), nn.BatchNorm2d(4)),
        nn.Flatten(2),
        nn.Conv1d(4, 6, 2),
        nn.BatchNorm1d(6, affine=False),
        nn.Flatten(),
        nn.Linear(90, 5),
        nn.BatchNorm1d(5),
        nn.Linear(5, 3),
    )


MODELS = {"apart": Apart, "folded": folded}


def lively(model: nn.Module, n: int = 3, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, FlatSpec, Tensor]:
    """The model with n clients around it, whose statistics all differ and whose variances are positive."""
    model = model.to(dtype)
    spec, generator = FlatSpec.of(model), torch.Generator().manual_seed(5)
    noise = torch.randn(n, spec.size, generator=generator, dtype=dtype)
    matrix = spec.flatten(model) + 0.3 * noise
    for where in spec.variances:
        matrix[:, where] = 0.5 + noise[:, where].square()
    return model, spec, matrix


def batch(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9), dtype=dtype)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", ["mixed", "detached", "moments"])
def test_equals_pytorch_in_eval_mode(name: str, mode: BatchNormMode) -> None:
    with seeded(0):
        model, spec, matrix = lively(MODELS[name]())
    x = batch(4, 2, 6, 6)
    reference = deepcopy(model).eval()
    spec.load(reference, matrix[0])
    torch.testing.assert_close(spec.functional_call(server_model(model, mode), matrix[0], x), reference(x))


def test_resnet_in_float32_equals_pytorch_in_eval_mode() -> None:
    with seeded(0):
        model, spec, matrix = lively(resnet8((3, 32, 32), 10), dtype=torch.float32)
    x = batch(4, 3, 32, 32, dtype=torch.float32)
    reference = deepcopy(model).eval()
    spec.load(reference, matrix[1])
    expected = reference(x)
    scale = float(expected.detach().abs().max())
    torch.testing.assert_close(
        spec.functional_call(server_model(model, "mixed"), matrix[1], x), expected, rtol=0, atol=1e-5 * scale
    )


@pytest.mark.parametrize("mode", ["mixed", "detached", "moments", "train", "reestimate"])
def test_the_model_itself_is_left_alone(mode: BatchNormMode) -> None:
    model = Apart().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    spec = FlatSpec.of(model)
    copy = server_model(model, mode)
    copy(torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(0)))
    assert all(m.training for m in model.modules())
    assert not any(m.training for m in copy.modules())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert FlatSpec.of(copy) == spec


def difference(loss: object, vector: Tensor, direction: Tensor, step: float = 1e-6) -> float:
    """Central finite difference of the loss along the direction."""
    return float((loss(vector + step * direction) - loss(vector - step * direction)) / (2 * step))  # type: ignore[operator]


@pytest.mark.parametrize("name", [*MODELS, "resnet8", "shufflenet"])
def test_finite_differences_along_the_vector_and_along_its_statistics(name: str) -> None:
    """⟨g, u⟩ against (L(v + hu) − L(v − hu))/2h, h = 1e-6, in float64, to 1e-4 relative."""
    shapes = {"resnet8": (3, 8, 8), "shufflenet": (1, 8, 8)}
    with seeded(0):
        made = {"resnet8": resnet8, "shufflenet": lambda *a: shufflenet(*a, width=0.5)}.get(name)
        model, spec, matrix = lively(made(shapes[name], 3) if made else MODELS[name]())
    x, y = batch(5, *shapes.get(name, (2, 6, 6))), torch.tensor([0, 1, 2, 0, 1])
    evaluated = server_model(model, "mixed")

    def loss(vector: Tensor) -> Tensor:
        return F.cross_entropy(spec.functional_call(evaluated, vector, x), y)

    vector = (0.2 * matrix[0] + 0.5 * matrix[1] + 0.3 * matrix[2]).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(vector), vector)
    for seed in range(3):
        direction = torch.randn(spec.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        statistics = direction.clone()
        statistics[: spec.num_parameters] = 0
        for u in (direction, statistics):
            with torch.no_grad():
                expected = difference(loss, vector, u / u.norm())
            assert float(gradient @ (u / u.norm())) == pytest.approx(expected, rel=1e-4, abs=1e-8)
    assert gradient[spec.num_parameters :].count_nonzero() > 0


def test_detached_has_the_same_parameter_gradient_and_none_in_the_statistics() -> None:
    with seeded(0):
        model, spec, matrix = lively(folded())
    x = batch(4, 2, 6, 6)
    gradients = []
    for mode in ("mixed", "detached"):
        vector = matrix[0].clone().requires_grad_()
        loss = spec.functional_call(server_model(model, mode), vector, x).square().sum()  # type: ignore[arg-type]
        gradients.append(torch.autograd.grad(loss, vector)[0])
    mixed, detached = gradients
    torch.testing.assert_close(detached[: spec.num_parameters], mixed[: spec.num_parameters])
    assert detached[spec.num_parameters :].eq(0).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", ["train", "reestimate"])
def test_batch_statistics_equal_pytorch_in_train_mode(name: str, mode: BatchNormMode) -> None:
    with seeded(0):
        model, spec, matrix = lively(MODELS[name]())
    x = batch(4, 2, 6, 6)
    reference = deepcopy(model)
    spec.load(reference, matrix[0])
    reference.train()
    for layer in reference.modules():
        if isinstance(layer, nn.Dropout):
            layer.eval()
    vector = matrix[0].clone().requires_grad_()
    output = spec.functional_call(server_model(model, mode), vector, x)
    torch.testing.assert_close(output, reference(x))
    (gradient,) = torch.autograd.grad(output.square().sum(), vector)
    assert gradient[spec.num_parameters :].eq(0).all()


@pytest.mark.parametrize("mode", ["mixed", "train"])
def test_a_batch_of_one_sample(mode: BatchNormMode) -> None:
    """With batch statistics a BatchNorm1d layer sees one value, whose deviation from its mean is 0."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    spec = FlatSpec.of(model)
    vector = spec.flatten(model)
    spec.unflatten(vector)["1.bias"].copy_(torch.tensor([7.0, 8.0]))
    output = spec.functional_call(server_model(model, mode), vector, torch.ones(1, 3))
    assert output.isfinite().all()
    if mode == "train":
        assert output[0].tolist() == pytest.approx([7, 8], abs=1e-3)


def test_layers_without_running_statistics_keep_using_the_batch() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, track_running_stats=False))
    assert not has_batchnorm(model)
    spec, x = FlatSpec.of(model), batch(4, 2, 5, 5, dtype=torch.float32)
    torch.testing.assert_close(spec.functional_call(server_model(model, "mixed"), spec.flatten(model), x), model(x))


def test_a_shared_convolution_is_not_folded() -> None:
    """The convolution runs twice, the second time with no BatchNorm behind it."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)
            self.first = nn.Sequential(self.conv, nn.BatchNorm2d(2))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.conv(self.first(x))
            return out

    with seeded(0):
        model, spec, matrix = lively(Twice())
    reference = deepcopy(model).eval()
    spec.load(reference, matrix[0])
    x = batch(2, 2, 5, 5)
    torch.testing.assert_close(spec.functional_call(server_model(model, "mixed"), matrix[0], x), reference(x))


def test_moments_by_hand() -> None:
    """μ = 0, 4, σ² = 1, 3, p = ¼, ¾: mean 3, second moments 1 and 19, ¼ + 57/4 = 14.5, variance 14.5 − 9 = 5.5."""
    model = nn.BatchNorm1d(1, affine=False)
    updates = Updates.of([[0.0, 1.0], [4.0, 3.0]], spec=FlatSpec.of(model))
    assert to_moments(updates.matrix, updates.spec).tolist() == [[0, 1], [4, 19]]
    assert moment_matched(updates, torch.tensor([0.25, 0.75])).tolist() == [3, 5.5]


def test_moments_of_half_precision_by_hand() -> None:
    """μ = 17, 19, σ² = 1, p = ½, ½: mean 18, second moments 290 and 362, variance 2; bfloat16 rounds 17²."""
    updates = Updates.of(
        torch.tensor([[17, 1], [19, 1]], dtype=torch.bfloat16), spec=FlatSpec.of(nn.BatchNorm1d(1, affine=False))
    )
    assert moment_matched(updates, torch.tensor([0.5, 0.5])).tolist() == [18, 2]


def test_moments_against_numpy() -> None:
    with seeded(0):
        _, spec, matrix = lively(folded(), n=4)
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    found = spec.unflatten(moment_matched(Updates.of(matrix, spec=spec), p))
    rows = [{k: v.numpy() for k, v in spec.unflatten(row).items()} for row in matrix]
    for name, value in found.items():
        expected = np.tensordot(p.numpy(), np.stack([r[name] for r in rows]), 1)
        if name.endswith("running_var"):
            means = np.stack([r[name.replace("var", "mean")] for r in rows])
            centre = p.numpy() @ means
            expected += p.numpy() @ (means - centre) ** 2
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-12)


def test_moments_of_one_client_are_its_own_model() -> None:
    with seeded(0):
        _, spec, matrix = lively(Apart())
    torch.testing.assert_close(from_moments(to_moments(matrix, spec)[0], spec), matrix[0])


def test_rounding_never_leaves_a_negative_variance() -> None:
    """μ² = 1e8 eats σ² = 1e-3 in float32."""
    spec = FlatSpec.of(nn.BatchNorm1d(1, affine=False))
    matrix = torch.tensor([[1e4, 1e-3], [1e4, 1e-3], [1e4, 1e-3]])
    p = torch.tensor([0.3, 0.3, 0.3])
    assert from_moments(p @ to_moments(matrix, spec), spec)[1] > 0


def test_finite_differences_in_p_with_moments() -> None:
    """The loss as a function of p along directions with Σ = 0."""
    with seeded(0):
        model, spec, matrix = lively(folded())
    moments, evaluated = to_moments(matrix, spec), server_model(model, "moments")
    x, y = batch(5, 2, 6, 6), torch.tensor([0, 1, 2, 0, 1])

    def loss(p: Tensor) -> Tensor:
        return F.cross_entropy(spec.functional_call(evaluated, from_moments(p @ moments, spec), x), y)

    p = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(p), p)
    for direction in ([1.0, -1, 0], [0, 1, -1], [2, -1, -1]):
        u = torch.tensor(direction, dtype=torch.float64)
        with torch.no_grad():
            expected = difference(loss, p, u)
        assert float(gradient @ u) == pytest.approx(expected, rel=1e-4)


def test_reestimate_by_hand() -> None:
    """1, 3, 8: mean 4, unbiased variance (9 + 1 + 16)/2 = 13; γ = 5 and β = 6 stay."""
    model = nn.BatchNorm1d(1)
    spec = FlatSpec.of(model)
    vector = torch.tensor([5.0, 6.0, 100.0, 1000.0])
    assert reestimate(model, spec, vector, torch.tensor([[1.0], [3.0], [8.0]])).tolist() == [5, 6, 4, 13]
    assert vector.tolist() == [5, 6, 100, 1000]


@pytest.mark.parametrize("name", MODELS)
def test_reestimate_equals_one_train_pass_with_momentum_one(name: str) -> None:
    with seeded(0):
        model, spec, matrix = lively(MODELS[name]())
    x = batch(9, 2, 6, 6)
    reference = deepcopy(model)
    spec.load(reference, matrix[0])
    reference.train()
    for layer in reference.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.momentum = 1.0
    reference(x)
    found = reestimate(model, spec, matrix[0], x)
    torch.testing.assert_close(found, spec.flatten(reference))
    assert torch.equal(found, reestimate(model, spec, matrix[0], x))


def test_reestimate_pools_over_batches() -> None:
    """2,050 samples make three batches; the first layer's statistics are those of all samples at once."""
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    spec = FlatSpec.of(model)
    x = batch(2050, 3, dtype=torch.float32) * 3 + torch.linspace(-2, 2, 2050)[:, None]
    found = spec.unflatten(reestimate(model, spec, spec.flatten(model), x))
    np.testing.assert_allclose(
        found["0.running_mean"].numpy(), x.numpy().mean(0, dtype=np.float64), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(found["0.running_var"].numpy(), x.double().numpy().var(0, ddof=1), rtol=1e-5)


def test_reestimate_with_one_value_per_channel_keeps_the_statistics() -> None:
    model = nn.BatchNorm1d(1, affine=False)
    vector = torch.tensor([2.0, 3.0])
    assert reestimate(model, FlatSpec.of(model), vector, torch.tensor([[9.0]])).tolist() == [2, 3]


def test_models_without_batchnorm_pass_through() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.GroupNorm(1, 2))
    spec = FlatSpec.of(model)
    matrix, vector = torch.ones(2, spec.size), torch.ones(spec.size)
    assert not has_batchnorm(model)
    assert has_batchnorm(Apart())
    assert to_moments(matrix, spec) is matrix
    assert from_moments(vector, spec) is vector
    assert reestimate(model, spec, vector, torch.ones(4, 3)) is vector
    copy = server_model(model, "mixed")
    assert all(a is b for a, b in zip(copy.parameters(), model.parameters(), strict=True))
