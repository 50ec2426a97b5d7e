"""Distributions are compared within sampling error."""

import numpy as np
import pytest

from resnet_fn.parity.initialisation import initialisation_stage

UNIFORM = 3**0.5  # a uniform draw between ± this has standard deviation 1


def drawn(kind: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = {
        "normal": rng.normal(0, 1, (50, 40)),
        "uniform": rng.uniform(-UNIFORM, UNIFORM, (50, 40)),
        "wide": rng.normal(0, 1.3, (50, 40)),
        "shifted": rng.normal(0.3, 1, (50, 40)),
    }
    return {"fc.weight": weights[kind], "fc.gamma": np.ones(40), "fc.few": rng.normal(size=4)}


@pytest.mark.parametrize("kind", ["normal", "uniform", "wide", "shifted"])
def test_two_draws_of_one_distribution_agree(kind):
    for seed in range(100):
        assert initialisation_stage(drawn(kind, seed), drawn(kind, 1000 + seed)).verdict == "ok"


@pytest.mark.parametrize(("kind", "moment"), [("uniform", "kurtosis"), ("wide", "std"), ("shifted", "mean")])
def test_the_moment_that_differs_is_named(kind, moment):
    for seed in range(20):
        stage = initialisation_stage(drawn(kind, seed), drawn("normal", 1000 + seed))
        assert (stage.verdict, stage.first.name) == ("DIFFERS", f"fc.weight {moment}")
        assert stage.hints[0].startswith("fc.weight: drawn in ")


def test_a_constant_for_a_draw_differs_and_another_constant_too():
    zeros = {"bias": np.zeros(20)}
    stage = initialisation_stage(zeros, {"bias": np.random.default_rng(0).normal(size=20)})
    assert stage.verdict == "DIFFERS"
    assert stage.hints[0].startswith("bias: all 0 here, drawn in -")
    stage = initialisation_stage(zeros, {"bias": np.full(20, 0.5)})
    assert stage.hints == ["bias: all 0 here, all 0.5 in the reference"]


def test_a_padding_row_is_compared_for_itself():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(50, 8)), rng.normal(size=(50, 8))
    theirs[3] = 0
    stage = initialisation_stage({"table": ours}, {"table": theirs})
    assert {hint.split(":")[0] for hint in stage.hints} == {"table row 3"}
    assert stage.hints[0].endswith("all 0 in the reference")
    ours[3] = 0
    assert initialisation_stage({"table": ours}, {"table": theirs}).verdict == "ok"


def test_each_part_of_a_joined_array_is_compared_for_itself():
    rng = np.random.default_rng(0)
    theirs = rng.normal(size=(96, 32))
    ours = rng.normal(size=(96, 32)) * np.repeat([1, 1.3, 1], 32)[:, None]
    stage = initialisation_stage({"qkv": ours}, {"qkv": theirs}, {"qkv": [32, 64]})
    assert {hint.split(":")[0] for hint in stage.hints} == {"qkv part 2 of 3"}
