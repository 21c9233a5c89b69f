"""pᵀW and W·g against NumPy, for every storage, across block borders, and without copies of the matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl import products
from smartfl.products import arithmetic, inner_products, mix_rows

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Several blocks and a short last one in matrices of a hundred columns."""
    monkeypatch.setattr(products, "BLOCK", 16)
    monkeypatch.setattr(products, "RUN", 32)


def drawn(dtype, n=5, d=100):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(n, d, generator=generator).to(dtype)
    p = torch.softmax(torch.randn(n, generator=generator, dtype=torch.float64), 0)
    vector = torch.randn(d, generator=generator).to(arithmetic(dtype))
    return matrix, p, vector


@pytest.mark.parametrize("dtype", TYPES)
def test_both_products_against_numpy(dtype):
    matrix, p, vector = drawn(dtype)
    exact, wide = matrix.double().numpy(), arithmetic(dtype)
    mixed, inner = mix_rows(matrix, p), inner_products(matrix, vector)
    assert (mixed.dtype, inner.dtype) == (wide, torch.float64)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(mixed.numpy(), p.numpy() @ exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(inner.numpy(), exact @ vector.double().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_mix_goes_where_it_is_told(dtype):
    matrix, p, _ = drawn(dtype)
    out = torch.full((100,), 7.0, dtype=arithmetic(dtype))
    assert mix_rows(matrix, p, out=out).data_ptr() == out.data_ptr()
    assert torch.equal(out, mix_rows(matrix, p))


def test_a_huge_row_has_its_exact_product_and_leaves_the_others_alone():
    """1e38 · (3 + 4 − 6) = 1e38 although 3e38 + 4e38 is no float32; the other row is 1·3 + 1·4 − 1·6 = 1."""
    matrix, vector = torch.tensor([[1e38, 1e38, 1e38], [1.0, 1.0, 1.0]]), torch.tensor([3.0, 4.0, -6.0])
    assert inner_products(matrix, vector).tolist() == pytest.approx([1e38, 1.0], rel=1e-6)


def test_long_rows_are_added_up_in_float64():
    """2²⁴ + 1 is no float32: 64 columns in two runs, 2²⁴ in the first and 1 in the second."""
    matrix = torch.zeros(1, 64)
    matrix[0, 0], matrix[0, 40] = 2.0**24, 1.0
    assert inner_products(matrix, torch.ones(64)).tolist() == [2.0**24 + 1]


def test_a_mapped_file_is_read_in_place(tmp_path):
    """np.memmap → torch without a copy: a value changed in the file is changed in the matrix."""
    mapped = np.memmap(tmp_path / "w.bin", np.float32, "w+", shape=(3, 50))
    mapped[:] = np.arange(150).reshape(3, 50)
    matrix = torch.as_tensor(mapped)
    mapped[2, 7] = -1000
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    np.testing.assert_allclose(mix_rows(matrix, p).numpy(), p.numpy() @ np.asarray(mapped, np.float64), rtol=1e-6)
    assert float(mix_rows(matrix, p)[7]) == pytest.approx(0.5 * 7 + 0.25 * 57 - 250)
