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


def drop_of(outcomes, title="block", **fields):
    return Drop(title, 0.2, False, varies=1.0, outcomes=tuple(outcomes), of="block", **fields)


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


def compared(port, reference):
    """The stage of two sides."""
    return Dropout().compare(port, reference, {"block": "block"})


def stage_of(port, reference, **options):
    return compared(*(side_of(drop_of(outcomes), **options) for outcomes in (port, reference)))


def are_apart(port, reference, **options):
    return stage_of(port, reference, **options).verdict == DIFFERS


def decide(port, reference):
    return not stage_of(port, reference).not_exercised


def layer_drop(rng, layers, share, factor=1.0, runs=64):
    """The results of runs of x + Σ kept · factor · 0.1 · k, over `layers` layers."""
    numbers = np.arange(1, layers + 1) / 10
    kept = rng.random((runs, layers)) >= share
    return outcomes_of([Y + added for added in kept @ numbers * factor], Y + numbers.sum())


def multiples(*factors):
    """The results of runs whose outputs are multiples of Y."""
    return outcomes_of([Y * factor for factor in factors], Y)


@pytest.mark.parametrize(("layers", "share"), [(1, 0.5), (2, 0.2), (6, 0.1), (12, 0.1)])
def test_another_factor_gives_other_results(layers, share):
    rng = np.random.default_rng(0)
    reference, right = (layer_drop(rng, layers, share) for _ in range(2))
    assert decide(right, reference)
    assert not are_apart(right, reference)
    assert are_apart(layer_drop(rng, layers, share, factor=1.25), reference)


def test_equal_laws_are_apart_only_by_chance():
    """The mean of the product of all results' factors is at most 1, so `evidence` obeys Markov."""
    rng = np.random.default_rng(1)
    for layers in [1, 3, 8] * 50:
        assert not are_apart(layer_drop(rng, layers, 0.3), layer_drop(rng, layers, 0.3))


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


@pytest.mark.parametrize(
    ("factor", "options", "apart"),
    [
        (1.002, {}, True),
        (1.002, {"rounding": 5e-4}, False),
        (2.0, {"rounding": OUTCOMES / 2}, True),
        (2.0, {"rounding": 2 * OUTCOMES}, False),  # too much compares nothing
        (2.0, {"precision": "fp16"}, False),
    ],
)
def test_rounding_of_the_layer_widens_the_bound(factor, options, apart):
    port, reference = multiples(*[1.0] * 64), multiples(*[factor] * 64)
    assert are_apart(port, reference, **options) == apart


def test_arrays_of_float16_are_summed_in_float64():
    """In float16, the sum of 9000 ones stays at 2048, and one of 90 000 is infinite."""
    y = np.ones((4, 22500), np.float16)
    outputs = [y * np.float16(factor) for factor in (0.5, 2)]
    whole = outcomes_of(outputs, y)[0]
    assert sorted(whole.seen) == [(0.5, 0.25, 1), (2.0, 1.0, 1)]
    assert [mean for mean, _ in response_of(outputs, y)] == [1.25, 0.625]


def test_results_are_compared_between_equally_many_dropouts():
    """A function applies both branches' dropout by one rate; the port has a layer for each."""
    single, both = multiples(*[1.0, 2.0] * 32), multiples(*[1.0, 3.0, 5.0, 4.0] * 16)
    port = side_of(drop_of(single, "block.a"), drop_of(single, "block.b"))
    assert "other numbers" not in compared(port, side_of(drop_of(both))).failed
    two = side_of(drop_of(both), drop_of(single, "block.b"))
    assert "other numbers" in compared(port, two).failed
    assert not compared(port, side_of(*[drop_of(single, "block.c")] * 2)).failed


def test_means_are_compared_between_equally_many_dropouts():
    half = {"response": ((0.9, 0.01), (0.2, 0.01))}
    drops = [drop_of((), title, **half) for title in ("block.a", "block.b")]
    both = drop_of((), response=((0.8, 0.01), (0.4, 0.01)))
    stage = compared(side_of(*drops), side_of(both, random_train="a function"))
    assert (stage.verdict, stage.failed) == (UNDECIDED, "")
    assert any("block.a" in line for line in stage.not_exercised)
    assert compared(side_of(drops[0]), side_of(both)).verdict == DIFFERS


def test_other_results_decide_no_undecided_stage():
    """The port's second dropout may be a function call in the reference."""
    port, reference = (drop_of(multiples(*[factor] * 64)) for factor in (1.0, 2.0))
    extra = Drop("head", 0.5, True, scale=2.0, shape=(4, 8))
    stage = compared(side_of(port, extra), side_of(reference, random_train="ops.dropout"))
    assert (stage.verdict, stage.failed) == (UNDECIDED, "")


def samples(shape, size, value):
    """The results of a whole array, and those of its first samples."""
    return [Outcomes(1.0, ((1.0, 0.0, 64),), shape), Outcomes(size, ((value, 0.0, 64),), shape)]


def test_samples_of_another_layout_are_not_compared():
    assert not are_apart(samples((4, 4), 0.5, 1.0), samples((4, 4), 0.2, 2.0))


@pytest.mark.parametrize(
    ("port", "reference", "apart"),
    [
        ((4, 8, 3, 3), (4, 3, 3, 8), True),
        ((4, 5, 8), (4, 5, 8), True),
        ((5, 5, 8), (5, 5, 8), False),  # steps first, or samples first
        ((4, 5, 8), (5, 4, 8), False),
        ((), (), False),
    ],
)
def test_first_samples_need_the_same_first_axis(port, reference, apart):
    assert are_apart(samples(port, 0.2, 1.0), samples(reference, 0.2, 2.0)) == apart


@pytest.mark.parametrize(("error", "lines"), [(0.001, 0), (0.02, 1)])
def test_a_factor_no_run_shows_is_named(error, lines):
    side = side_of(drop_of((), response=((1.0, 0.01), (0.1, error))))
    assert ["block" in line for line in compared(side, side).not_exercised] == [True] * lines


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
