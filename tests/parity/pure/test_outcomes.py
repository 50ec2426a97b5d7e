"""Results of dropped paths: which both sides give, as a test of counts."""

import math
from types import SimpleNamespace as Namespace

import numpy as np
import pytest

from resnet_fn.parity.compare.draws import OUTCOMES, RARE_OUTCOMES
from resnet_fn.parity.compare.dropout import Dropout
from resnet_fn.parity.record.outcomes import outcomes_of, repeat
from resnet_fn.parity.record.repeated_runs import repeated
from resnet_fn.parity.record.responses import response_of
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED
from resnet_fn.parity.trace.drop import Drop, Outcomes
from resnet_fn.parity.trace.stages import TRAIN_FORWARD

Y = np.array([[3.0, 1.0], [1.0, 2.0]])

SHARE = 0.2


def drop_of(outcomes, title="block", **fields):
    return Drop(title, SHARE, False, varies=1.0, outcomes=tuple(outcomes), of="block", **fields)


def side_of(*drops, rounding=0.0, precision="fp32", random_train=""):
    layers = [Namespace(name="block", title="block", input=None, output_rounding=rounding)]
    return Namespace(
        drops=drops,
        dropping=(drops, layers),
        random_train=random_train,
        plan=Namespace(precision=precision),
        rounding={TRAIN_FORWARD: {}},
        kernels={},
        run=Namespace(train_outputs=[]),
    )


def stage_of(port, reference, **options):
    sides = [side_of(drop_of(one), **options) for one in (port, reference)]
    return Dropout().compare(*sides, {"block": "block"})


def are_apart(port, reference, **options):
    return stage_of(port, reference, **options).verdict == DIFFERS


def decide(port, reference):
    return not stage_of(port, reference).not_exercised


def layer_drop(rng, factor, layers, share, runs=64):
    """Runs of x + Σ kept · factor · 0.1 · k, over `layers` layers."""
    kept = rng.random((runs, layers)) >= share
    added = (kept * np.arange(1, layers + 1)).sum(1) * factor / 10
    return [Y + one for one in added]


def multiples(*factors):
    """The results of runs whose outputs are multiples of Y."""
    return outcomes_of([Y * factor for factor in factors], Y)


@pytest.mark.parametrize(("layers", "share"), [(1, 0.5), (2, 0.2), (6, 0.1), (12, 0.1)])
def test_another_factor_gives_other_results(layers, share):
    rng = np.random.default_rng(0)
    y = Y + np.arange(1, layers + 1).sum() / 10
    reference = outcomes_of(layer_drop(rng, 1.0, layers, share), y)
    right = outcomes_of(layer_drop(rng, 1.0, layers, share), y)
    wrong = outcomes_of(layer_drop(rng, 1.25, layers, share), y)
    assert decide(right, reference)
    assert not are_apart(right, reference)
    assert are_apart(wrong, reference)


def test_equal_laws_are_apart_only_by_chance():
    """The mean of the product of all results' factors is at most 1, so `evidence` obeys Markov."""
    rng = np.random.default_rng(1)
    for layers in (1, 3, 8):
        y = Y + np.arange(1, layers + 1).sum() / 10
        for _ in range(50):
            pair = [outcomes_of(layer_drop(rng, 1.0, layers, 0.3), y) for _ in "ab"]
            assert not are_apart(*pair)


def test_results_that_never_repeat_decide_nothing():
    rng = np.random.default_rng(2)
    sides = [outcomes_of([Y * rng.random(Y.shape) for _ in range(64)], Y) for _ in "ab"]
    assert not decide(*sides)
    assert not are_apart(*sides)


def test_the_order_of_near_results_decides_nothing():
    near = [1.0] * 45 + [1 + 0.8e-4] * 10 + [1 + 1.6e-4] * 9
    middle_first = near[45:] + near[:45]
    assert not are_apart(multiples(*near[::-1]), multiples(*middle_first))


@pytest.mark.parametrize("width", [3e-5, 3e-4, 3e-3])
def test_a_continuum_of_results_accuses_nobody(width):
    rng = np.random.default_rng(3)
    for _ in range(50):
        sides = [multiples(*(1 + width * rng.standard_normal(64))) for _ in "ab"]
        assert not are_apart(*sides)


def test_large_results_are_compared_relatively():
    """A part of 300 and a change of 89401 of Y, each with an error of 1e-4 of itself."""
    factors = np.array([1.0, 300.0] * 32)
    assert not are_apart(multiples(*factors), multiples(*(factors * (1 + 1e-4))))
    assert are_apart(multiples(*factors), multiples(*(factors * 1.01)))


@pytest.mark.parametrize(("rounding", "apart"), [(0.0, True), (5e-4, False), (2 * OUTCOMES, False)])
def test_rounding_of_the_layer_widens_the_bound(rounding, apart):
    sides = [multiples(*[factor] * 64) for factor in (1.0, 1.002)]
    assert are_apart(*sides, rounding=rounding) == apart


def test_too_much_rounding_compares_nothing():
    sides = [multiples(*[factor] * 64) for factor in (1.0, 2.0)]
    assert are_apart(*sides, rounding=OUTCOMES / 2)
    assert not are_apart(*sides, rounding=2 * OUTCOMES)


def test_outcomes_of_fp16_runs_are_not_compared():
    sides = [multiples(*[factor] * 64) for factor in (1.0, 2.0)]
    assert are_apart(*sides)
    assert not are_apart(*sides, precision="fp16")


def test_arrays_of_float16_are_summed_in_float64():
    """In float16, the sum of 9000 ones stays at 2048, and one of 90 000 is infinite."""
    y = np.ones((4, 22500), np.float16)
    outputs = [y * np.float16(factor) for factor in (0.5, 2)]
    whole = outcomes_of(outputs, y)[0]
    assert sorted(whole.seen) == [(0.5, 0.25, 1), (2.0, 1.0, 1)]
    assert [mean for mean, _ in response_of(outputs, y)] == [1.25, 0.625]


def test_results_are_compared_between_equally_many_dropouts():
    """A function applies both branches' dropout by one rate; the port has a layer for each."""
    one, both = multiples(*[1.0, 2.0] * 32), multiples(*[1.0, 3.0, 5.0, 4.0] * 16)
    port = side_of(drop_of(one, "block.a"), drop_of(one, "block.b"))
    names = {"block": "block"}
    wrong = drop_of(one, "block.c")
    for drops in ((drop_of(both),), (drop_of(both), drop_of(one, "block.b"))):
        stage = Dropout().compare(port, side_of(*drops), names)
        assert ("other numbers" in stage.failed) == (len(drops) == 2)
    assert not Dropout().compare(port, side_of(wrong, wrong), names).failed


def test_means_are_compared_between_equally_many_dropouts():
    half, all_of_it = ((0.9, 0.01), (0.2, 0.01)), ((0.8, 0.01), (0.4, 0.01))
    one = drop_of((), "block.a", response=half)
    port = side_of(one, drop_of((), "block.b", response=half))
    both = drop_of((), response=all_of_it)
    stage = Dropout().compare(port, side_of(both, random_train="a function"), {"block": "block"})
    assert (stage.verdict, stage.failed) == (UNDECIDED, "")
    assert any("block.a" in line for line in stage.not_exercised)
    assert Dropout().compare(side_of(one), side_of(both), {"block": "block"}).verdict == DIFFERS


def test_other_results_decide_no_undecided_stage():
    """The port's second dropout may be a function call in the reference."""
    one, other = (multiples(*[factor] * 64) for factor in (1.0, 2.0))
    extra = Drop("head", 0.5, True, scale=2.0, shape=(4, 8))
    port = side_of(drop_of(one), extra)
    reference = side_of(drop_of(other), random_train="ops.dropout")
    stage = Dropout().compare(port, reference, {"block": "block"})
    assert (stage.verdict, stage.failed) == (UNDECIDED, "")


def results(size, value, shape):
    return Outcomes(size, ((value, 0.0, 64),), shape)


def test_samples_of_another_layout_are_not_compared():
    whole = results(1.0, 1.0, (4, 4))
    port, reference = ([whole, results(*one, (4, 4))] for one in ((0.5, 1.0), (0.2, 2.0)))
    assert not are_apart(port, reference)


@pytest.mark.parametrize(
    ("port", "reference", "apart"),
    [
        ((4, 8), (4, 8), True),
        ((4, 8, 3, 3), (4, 3, 3, 8), True),
        ((4, 5, 8), (4, 5, 8), True),
        ((5, 5, 8), (5, 5, 8), False),  # steps first, or samples first
        ((4, 5, 8), (5, 4, 8), False),
        ((), (), False),
    ],
)
def test_first_samples_need_the_same_first_axis(port, reference, apart):
    sides = [
        [results(1.0, 1.0, shape), results(0.2, value, shape)]
        for shape, value in ((port, 1.0), (reference, 2.0))
    ]
    assert are_apart(*sides) == apart


@pytest.mark.parametrize(("error", "lines"), [(0.001, 0), (0.02, 1)])
def test_a_factor_no_run_shows_is_named(error, lines):
    drop = drop_of((), response=((1.0, 0.01), (0.1, error)))
    stage = Dropout().compare(side_of(drop), side_of(drop), {"block": "block"})
    assert [("block" in line) for line in stage.not_exercised] == [True] * lines


def test_evidence_of_one_result_is_its_binomial():
    """n runs of one result in the port, n of another in the reference: about 2ⁿ⁻² for each."""
    needed = math.ceil(-math.log2(RARE_OUTCOMES) / 2) + 2
    for runs, apart in ((needed, True), (needed - 2, False)):
        sides = [[Outcomes(1.0, ((value, 0.0, runs),))] for value in (1.0, 2.0)]
        assert are_apart(*sides) == apart


def test_a_first_sample_of_zeros_repeats_nothing():
    y = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert not repeat([y * factor for factor in range(1, 33)], y)
    assert repeat([y * factor for factor in [1, 2] * 16], y)


def test_outputs_that_are_no_floats_have_no_results():
    y = np.array([[True, False]])
    assert outcomes_of([y, ~y], y) == ()


def test_an_error_in_is_enough_is_raised():
    def is_enough(outputs):
        raise ZeroDivisionError

    outputs = iter(np.arange(64.0))
    with pytest.raises(ZeroDivisionError):
        repeated(lambda compiled: lambda: next(outputs), True, 0.5, is_enough)
