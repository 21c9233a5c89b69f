"""Blocks of columns on any number of threads: same work, same order of sums, same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.blocks import RUN, columns_at_once, for_blocks, sum_of_blocks
from smartfl.aggregators.bulyan import Bulyan
from smartfl.aggregators.centered_clipping import CenteredClipping
from smartfl.aggregators.columns import by_columns, middle
from smartfl.aggregators.geometric_median import GeometricMedian
from smartfl.aggregators.ida import IDA
from smartfl.aggregators.median import Median
from smartfl.aggregators.multi_krum import MultiKrum
from smartfl.aggregators.norm_clipping import NormClipping
from smartfl.aggregators.trimmed_mean import TrimmedMean
from smartfl.types import Updates


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 10, 11, 999])
def test_every_column_once(threads: Callable[[int], None], count: int, size: int) -> None:
    threads(count)
    seen = torch.zeros(size)

    def mark(part: slice) -> None:
        seen[part] += 1

    for_blocks(mark, size, block=10)
    assert (seen == 1).all()
    assert sum_of_blocks(lambda part: seen[part].sum(), size, block=10).item() == size


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_threads_as_torch_may_use_each_with_one_of_its_own(threads: Callable[[int], None], count: int) -> None:
    """All of them must be at work at once to get past the barrier; it breaks if there are fewer."""
    threads(count)
    inside, who, barrier = list[int](), set[int](), threading.Barrier(count)

    def work(part: slice) -> None:
        if part.start % (RUN * 10) == 0:
            barrier.wait(timeout=20)
        inside.append(torch.get_num_threads())
        who.add(threading.get_ident())

    for_blocks(work, count * RUN * 10, block=10)
    assert set(inside) == {1}
    assert len(who) == count
    assert (who == {threading.get_ident()}) is (count == 1)
    assert torch.get_num_threads() == count


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_comes_out_and_torchs_threads_come_back(threads: Callable[[int], None], count: int) -> None:
    threads(count)

    def fail(part: slice) -> None:
        raise RuntimeError(f"block at {part.start}")

    with pytest.raises(RuntimeError, match="block at 0"):
        for_blocks(fail, 1000, block=10)
    assert torch.get_num_threads() == count
    seen = list[int]()
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert seen == [count]


def test_inference_mode_reaches_the_threads(threads: Callable[[int], None]) -> None:
    """Tensors made in inference mode cannot be written to outside of it, and the mode belongs to a thread."""
    threads(2)
    with torch.inference_mode():
        assert by_columns(middle, torch.arange(300.0).reshape(3, 100), block=5).tolist() == list(range(100, 200))


def test_a_block_is_bounded_for_any_number_of_clients() -> None:
    assert columns_at_once(48, torch.float64) == (1 << 20) // (8 * 48)
    assert columns_at_once(48, torch.float32) == (1 << 20) // (4 * 48)
    assert columns_at_once(10**6, torch.float32) == 64


RULES: dict[str, Callable[[], Aggregator]] = {
    "median": Median,
    "trimmed_mean": lambda: TrimmedMean(b=2),
    "multi_krum": lambda: MultiKrum(f=2),
    "bulyan": lambda: Bulyan(f=2),
    "geometric_median": GeometricMedian,
    "centered_clipping": lambda: CenteredClipping(tau=3, iterations=2),
    "norm_clipping": NormClipping,
    "ida": IDA,
}


@pytest.mark.parametrize("rule", RULES)
def test_results_are_the_same_bits_for_any_number_of_threads(threads: Callable[[int], None], rule: str) -> None:
    rows = torch.randn(12, 200_003, generator=torch.Generator().manual_seed(0)) + 3

    def run(count: int) -> tuple[Tensor, Tensor | None]:
        threads(count)
        result = RULES[rule]()(Updates.of(rows))
        return result.vector, result.coefficients

    vector, coefficients = run(1)
    for count in (2, 5):
        again, weights = run(count)
        assert torch.equal(vector, again)
        if coefficients is not None:
            assert weights is not None
            assert torch.equal(coefficients, weights)
