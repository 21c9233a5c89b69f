import pytest
import torch

from smartfl.confidence import proxy_statement, proxy_warnings, weight_statement, wilson_interval
from smartfl.types import Aggregate, Dropped, Proxy


def test_interval_by_hand() -> None:
    """8 of 10, z = 2: p = 0.8, z²/N = 0.4; (0.8 + 0.2 ± 2 √(0.016 + 0.01)) / 1.4 = (1 ± 0.3224903) / 1.4."""
    assert wilson_interval(8, 10, z=2) == pytest.approx(((1 - 0.32249031) / 1.4, (1 + 0.32249031) / 1.4))


@pytest.mark.parametrize("correct", [0, 1, 64, 127, 128])
def test_interval_holds_the_rate_and_is_never_empty(correct: int) -> None:
    low, high = wilson_interval(correct, 128)
    assert 0 <= low <= correct / 128 <= high <= 1
    assert high - low > 0.02


def test_interval_covers_a_known_rate() -> None:
    """Of 2,000 draws of 128 trials at rate 0.8 about 95 % of the intervals hold 0.8."""
    draws = torch.rand(2000, 128, generator=torch.Generator().manual_seed(0)) < 0.8
    intervals = [wilson_interval(int(row.sum()), 128) for row in draws]
    assert 0.93 < sum(low <= 0.8 <= high for low, high in intervals) / 2000 < 0.97


def proxy_of(labels: list[int], classes: int) -> Proxy:
    return Proxy(torch.zeros(len(labels), 1), torch.tensor(labels), classes)


def test_statement_counts_what_is_right() -> None:
    proxy = proxy_of([0, 1] * 10, 2)
    logits = torch.tensor([[1.0, 0.0]] * 20)
    loss, said, events = proxy_statement(logits, proxy, t=1)
    assert said["proxy_accuracy"] == 0.5
    assert (said["proxy_accuracy_low"], said["proxy_accuracy_high"]) == wilson_interval(10, 20)
    assert loss == pytest.approx(0.5 * (1.3132617 + 0.3132617))  # log(1 + e) and log(1 + 1/e)
    assert events == ()


def test_chance_level_is_a_disagreement_only_once_the_model_had_time() -> None:
    proxy = proxy_of([0, 1] * 10, 2)
    guess, right = torch.tensor([[1.0, 0.0]] * 20), torch.eye(2).repeat(10, 1)
    assert proxy_statement(guess, proxy, t=4)[2] == ()
    assert "the new model gets 10 of the server's 20 samples right" in proxy_statement(guess, proxy, t=5)[2][0]
    assert proxy_statement(right, proxy, t=5)[2] == ()


def test_naming_the_largest_class_of_many_is_a_disagreement_too() -> None:
    """Of 100 samples 60 are of class 0: always saying 0 is right in 60, whose interval begins at 50 %."""
    proxy = proxy_of([0] * 60 + [1] * 20 + [2] * 20, 3)
    always, better = torch.tensor([[1.0, 0.0, 0.0]] * 100), torch.eye(3)[[0] * 60 + [1] * 20 + [0] * 20]
    assert "the new model gets 60 of the server's 100 samples right" in proxy_statement(always, proxy, t=5)[2][0]
    assert proxy_statement(better, proxy, t=5)[2] == ()


def test_missing_classes_and_small_sets_are_named() -> None:
    (scarce,) = proxy_warnings(torch.tensor([0] * 35 + [1] * 3 + [2] * 12), 3)
    assert scarce.startswith("the server has fewer than 10 samples of 1 of 3 classes (1: 3)")
    missing, small = proxy_warnings(torch.tensor([0, 0, 2]), 4)
    assert "miss 2 of 4 classes (1, 3)" in missing
    assert "3 samples for 4 classes" in small
    assert proxy_warnings(torch.arange(4).repeat(10), 4) == ()


def test_effective_clients_and_screened_share() -> None:
    """p = (½, ½, 0) counts for 2 clients, a second architecture's (1) for 1; one of five clients was refused."""
    first = Aggregate(torch.zeros(1), torch.tensor([0.5, 0.5, 0.0]), dropped=(Dropped(7, "NaN"),))
    second = Aggregate(torch.zeros(1), torch.tensor([1.0]))
    assert weight_statement([first, second], 5) == {"screened_share": 0.2, "effective_clients": pytest.approx(3)}
    nobody = Aggregate(torch.zeros(1), torch.zeros(0))
    assert weight_statement([first, nobody], 4)["effective_clients"] == pytest.approx(2)
    assert "effective_clients" not in weight_statement([nobody], 0)
    assert "effective_clients" not in weight_statement([Aggregate(torch.zeros(1))], 1)
    assert "effective_clients" not in weight_statement([Aggregate(torch.zeros(1), torch.zeros(2))], 2)
