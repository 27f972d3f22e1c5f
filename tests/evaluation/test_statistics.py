import itertools
import math
import random
from statistics import NormalDist

import pytest

from agent_rl.evaluation.summary import estimate_mean, estimate_rate, ks, pass_at_k


@pytest.mark.parametrize("samples", range(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_with_a_right_one(samples):
    for right, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        verdicts = [True] * right + [False] * (samples - right)
        choices = list(itertools.combinations(verdicts, k))
        assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


@pytest.mark.parametrize(("samples", "right", "k"), [(2, 0, 3), (2, 3, 1), (2, -1, 1), (2, 1, 0), (0, 0, 1)])
def test_pass_at_k_of_too_few_samples(samples, right, k):
    with pytest.raises(ValueError, match="samples"):
        pass_at_k(samples, right, k)


def test_ks_are_the_powers_of_two_and_n():
    assert [ks(n) for n in (1, 2, 3, 8, 10)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 10]]


def test_a_mean_over_rows():
    found = estimate_mean([[1.0, 3.0], [4.0], []])
    assert (found.mean, found.rows) == (3.0, 2)
    half = NormalDist().inv_cdf(0.975) * math.sqrt(2.0) / math.sqrt(2)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))


def test_too_few_rows_have_no_interval():
    assert (estimate_mean([[1.0, 0.0]]).low, estimate_rate([[1.0, 0.0]]).low) == (None, None)
    assert math.isnan(estimate_mean([[], []]).mean)


def test_copies_of_a_sample_do_not_narrow_the_interval():
    once = estimate_rate([[1.0], [0.0], [1.0]])
    assert estimate_rate([[1.0] * 9, [0.0] * 9, [1.0] * 9]) == once


def test_a_rate_of_independent_rows_has_wilsons_interval():
    """Of 80 right in 100 by Wilson: the corrected variance stands for 99 independent rows."""
    z, n = NormalDist().inv_cdf(0.975), 99
    found = estimate_rate([[1.0]] * 80 + [[0.0]] * 20)
    centre, half = (0.8 + z * z / 2 / n), z * math.sqrt(0.16 / n + z * z / 4 / n / n)
    assert (found.low, found.high) == pytest.approx(
        ((centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n))
    )


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_interval_has_a_width_when_all_rows_agree(value):
    found = estimate_rate([[value]] * 20)
    assert found.mean == value
    assert 0 <= found.low < found.high <= 1
    assert found.high - found.low > 0.1


def test_the_interval_covers_what_it_should():
    """Rows of unlike difficulty with four samples each: the true rate is inside about 95 times in 100."""
    rng = random.Random(0)
    inside = 0
    for _ in range(400):
        difficulties = [rng.random() for _ in range(60)]
        found = estimate_rate([[float(rng.random() < each) for _ in range(4)] for each in difficulties])
        inside += found.low <= 0.5 <= found.high
    assert 0.91 <= inside / 400 <= 0.98
