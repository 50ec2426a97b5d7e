"""Results of dropped paths: which both sides give, as a test of counts."""

import math
from types import SimpleNamespace as Namespace

import numpy as np
import pytest

from resnet_fn.parity.compare.draws import RARE_OUTCOMES
from resnet_fn.parity.compare.dropout import dropout_stage
from resnet_fn.parity.compare.outcomes import outcomes_are_apart, outcomes_decide
from resnet_fn.parity.record.outcomes import outcomes_of
from resnet_fn.parity.trace.data import Drop, Outcomes

Y = np.array([[3.0, 1.0], [1.0, 2.0]])


def layer_drop(rng, factor, layers, share, runs=64):
    """Runs of x + Σ kept · factor · 0.1 · k, over `layers` layers."""
    kept = rng.random((runs, layers)) >= share
    added = (kept * np.arange(1, layers + 1)).sum(1) * factor / 10
    return [Y + one for one in added]


@pytest.mark.parametrize(("layers", "share"), [(1, 0.5), (2, 0.2), (6, 0.1), (12, 0.1)])
def test_another_factor_gives_other_results(layers, share):
    rng = np.random.default_rng(0)
    y = Y + np.arange(1, layers + 1).sum() / 10
    reference = outcomes_of(layer_drop(rng, 1.0, layers, share), y)
    right = outcomes_of(layer_drop(rng, 1.0, layers, share), y)
    wrong = outcomes_of(layer_drop(rng, 1.25, layers, share), y)
    assert outcomes_decide(right, reference)
    assert not outcomes_are_apart(right, reference)
    assert outcomes_are_apart(wrong, reference)


def test_equal_laws_are_apart_only_by_chance():
    """The mean of the product of all results' factors is at most 1, so `evidence` obeys Markov."""
    rng = np.random.default_rng(1)
    for layers in (1, 3, 8):
        y = Y + np.arange(1, layers + 1).sum() / 10
        for _ in range(50):
            pair = [outcomes_of(layer_drop(rng, 1.0, layers, 0.3), y) for _ in "ab"]
            assert not outcomes_are_apart(*pair)


def test_results_that_never_repeat_decide_nothing():
    rng = np.random.default_rng(2)
    sides = [outcomes_of([Y * rng.random(Y.shape) for _ in range(64)], Y) for _ in "ab"]
    assert not outcomes_decide(*sides)
    assert not outcomes_are_apart(*sides)


def test_samples_of_another_layout_are_not_compared():
    port, reference = (Outcomes(size, ((value, 0.0, 64),)) for size, value in ((0.5, 1), (0.2, 2)))
    assert not outcomes_are_apart([port], [reference])


@pytest.mark.parametrize(("error", "lines"), [(0.001, 0), (0.02, 1)])
def test_a_factor_that_runs_do_not_show_is_named(error, lines):
    drop = Drop("block", 0.1, False, varies=1.0, response=((1.0, 0.01), (0.1, error)), of="block")
    side = Namespace(drops=[drop], dropping=([drop], []), random_train="")
    stage = dropout_stage(side, side, {"block": "block"})
    assert [("block" in line) for line in stage.not_exercised] == [True] * lines


def test_evidence_of_one_result_is_its_binomial():
    """n runs of one result in the port, n of another in the reference: about 2ⁿ⁻² for each."""
    needed = math.ceil(-math.log2(RARE_OUTCOMES) / 2) + 2
    for runs, apart in ((needed, True), (needed - 2, False)):
        sides = [[Outcomes(1.0, ((value, 0.0, runs),))] for value in (1.0, 2.0)]
        assert outcomes_are_apart(*sides) == apart
