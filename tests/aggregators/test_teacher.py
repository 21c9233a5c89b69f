from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.teacher import distillation_loss, teacher_probabilities, unbiased_labels, voices

MEMBERS = torch.tensor([[[2.0, 0, 0]], [[0, 2.0, 0]]])


def test_logits_are_averaged_before_the_softmax():
    """z̄ = (1, 1, 0): e/(2e + 1) = 0.422319."""
    q = teacher_probabilities(MEMBERS)
    torch.testing.assert_close(q, torch.tensor([[0.422319, 0.422319, 0.155362]]).double(), atol=1e-6, rtol=0)


def test_probabilities_are_averaged_on_request():
    """softmax(2, 0, 0) = (0.786986, 0.106507, 0.106507); mean with its mirror image 0.446747."""
    q = teacher_probabilities(MEMBERS, "avg_probs")
    torch.testing.assert_close(q, torch.tensor([[0.446747, 0.446747, 0.106507]]).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("ensemble", "expected"), [("avg_logits", 0.111769), ("avg_probs", 0.146227)])
def test_divergence_of_a_student_from_both_teachers(ensemble, expected):
    """Student logits (1, 0, 0) of the spec's example."""
    loss = distillation_loss(teacher_probabilities(MEMBERS, ensemble), torch.tensor([[1.0, 0, 0]]))
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_sharpening_by_one_half_squares():
    """(0.36, 0.09, 0.01)/0.46 = (0.782609, 0.195652, 0.021739)."""
    q = teacher_probabilities(torch.tensor([[[0.6, 0.3, 0.1]]]).log(), "avg_probs", sharpening=0.5)
    torch.testing.assert_close(q, torch.tensor([[0.782609, 0.195652, 0.021739]]).double(), atol=1e-6, rtol=0)


def test_the_temperature_flattens():
    """z̄/2 = (0.5, 0.5, 0): e^0.5/(2 e^0.5 + 1)."""
    q = teacher_probabilities(MEMBERS, temperature=2.0)
    e = torch.tensor(0.5, dtype=torch.float64).exp()
    torch.testing.assert_close(q[0, 0], e / (2 * e + 1))


def test_huge_finite_logits_do_not_overflow():
    members = torch.full((4, 2, 3), 3e38)
    members[:, :, 0] = 3.3e38
    for ensemble in ("avg_logits", "avg_probs"):
        q = teacher_probabilities(members, ensemble, sharpening=0.5)
        torch.testing.assert_close(q, torch.tensor([[1.0, 0, 0]] * 2).double())
        assert torch.isfinite(distillation_loss(q, torch.zeros(2, 3)))


def test_a_student_that_says_the_same_has_no_loss():
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert float(distillation_loss(teacher_probabilities(z[None]), z)) == pytest.approx(0, abs=1e-6)


def test_unbiased_labels_by_hand() -> None:
    """A loud client that always says class 0, a quiet one that always says class 1; both a little less where unsure.

    First: (50, 0), (40, 0) → classes centred (25, −25), (20, −20) → samples centred (2.5, −2.5), (−2.5, 2.5) → unit
    (1, −1), (−1, 1).  Second: (0, 4), (0, 5) → the same.  The mean of the logits would say class 0 of both samples.
    """
    logits = torch.tensor([[[50.0, 0.0], [40.0, 0.0]], [[0.0, 4.0], [0.0, 5.0]]])
    assert unbiased_labels(logits).tolist() == [0, 1]
    assert logits.mean(dim=0).argmax(dim=1).tolist() == [0, 0]


def test_unbiased_labels_of_one_sample_and_of_silent_members() -> None:
    """One sample has no mean to take out; a member without an opinion changes nothing."""
    assert unbiased_labels(torch.tensor([[[0.0, 2.0, 1.0]]])).tolist() == [1]
    logits = torch.tensor([[[3.0, 0.0], [0.0, 3.0]]])
    assert unbiased_labels(torch.cat([logits, torch.zeros(1, 2, 2)])).tolist() == unbiased_labels(logits).tolist()


def test_a_choir_has_fewer_voices_than_singers() -> None:
    """Three members changed the same thing, four changed things unrelated to it and to each other.

    s = 3, 3, 3 and 1, 1, 1, 1 with median 1: a third of a voice for each of the three.
    """
    base = torch.tensor([1.0, -1]).expand(8, 2)
    signs = [[1.0 if bin(row & j).count("1") % 2 == 0 else -1.0 for j in range(8)] for row in range(1, 6)]
    a, *others = [torch.tensor(row)[:, None] * torch.tensor([1.0, -1]) for row in signs]  # orthogonal, every mean 0
    logits = torch.stack([base + a, base + 5 * a, base + 2 * a, *(base + b for b in others)])
    assert voices(logits, base).tolist() == pytest.approx([1 / 3] * 3 + [1] * 4)
    assert voices(torch.stack([base + a, base - a]), base).tolist() == [1, 1]  # opposites are two


def test_a_choir_does_not_outvote_as_many_soloists() -> None:
    """Sample 0 is of class 0, sample 1 of class 1.  Three members see it, each with a quirk of its own elsewhere, so
    ρ = ½ and s = 1 + 2/4 = 1.5; three say the opposite in unison, s = 3.  The median s is 2.25: 3 voices against 2.25.
    """
    truth = torch.tensor([1.0, -1, 0, 0, 0, 0, 0, 0])
    quirks = torch.eye(8)[2::2] - torch.eye(8)[3::2]
    members = torch.cat([truth + quirks, -truth.expand(3, 8)])
    logits = torch.stack([members, -members], dim=2)
    assert voices(logits, torch.zeros(8, 2)).tolist() == pytest.approx([1, 1, 1, 0.75, 0.75, 0.75])
    assert unbiased_labels(logits, torch.zeros(8, 2))[:2].tolist() == [0, 1]
    assert unbiased_labels(logits)[:2].tolist() == [1, 0]  # three against three, and the choir is surer


def test_the_median_counts_members() -> None:
    """Margins of class 0 over class 1: of two members 1, −1, 3, −3, root mean square √5; of a third −5, 5, 0, 0, √12.5.

    On the first sample that is 0.45, 0.45 and −1.41.  Their sum would say class 1.
    """
    margins = torch.tensor([[1.0, -1, 3, -3], [1, -1, 3, -3], [-5, 5, 0, 0]])
    logits = torch.stack([margins / 2, -margins / 2], dim=2)
    assert unbiased_labels(logits)[:2].tolist() == [0, 1]


def test_a_change_of_nothing_is_a_voice() -> None:
    logits = torch.tensor([[[3.0, 0.0], [0.0, 3.0]]])
    assert voices(logits, logits[0]).tolist() == [1]
    assert unbiased_labels(logits, logits[0]).tolist() == [0, 1]
