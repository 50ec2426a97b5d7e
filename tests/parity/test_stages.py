"""Stages: distributions within sampling error, and what counts as rounding."""

from collections.abc import Sequence

import numpy as np
import pytest

from resnet_fn.parity.compare import Stage
from resnet_fn.parity.stages import TracePair, initialisation_stage, inputs_stage, stages_after_weights
from resnet_fn.parity.trace import Trace

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


def traces(**apart: float) -> tuple[Trace, Trace, Trace]:
    """MindSpore's side, PyTorch's and its float64 values; `apart` shifts MindSpore's, PyTorch's is off by 1e-3."""

    def trace(shift: float, side: dict[str, float]) -> Trace:
        def values(field: str, size: int = 4) -> np.ndarray:
            return np.ones(size) * (1 + shift) * (1 + side.get(field, 0.0))

        return Trace(
            eval_logits=values("eval_logits"),
            start={"w": np.full(4, 0.5), "mean": np.zeros(4)},
            rates=[0.1, 0.2],
            first={"w": values("first"), "mean": values("first")},
            train_logits=[values("train_logits"), values("train_logits")],
            losses=[float(values("losses")[0]), float(values("losses")[0])],
            norms=[2.0, 2.0],
            gradients={"w": values("gradients")},
            clipped={"w": values("gradients")},
        )

    return trace(0.0, apart), trace(1e-3, {}), trace(0.0, {})


def stages(*traces: Trace, order: Sequence[str] = ("w", "mean")) -> dict[str, Stage]:
    return {stage.name: stage for stage in stages_after_weights(TracePair(*traces), order)}


def test_what_float32_costs_the_reference_is_rounding_and_more_is_a_difference():
    # MindSpore's eval logits are 1.0 · (1 + 2e-3): 1e-3 from the reference, which is 1e-3 from float64.
    found = stages(*traces(eval_logits=2e-3, gradients=1e-2))
    assert found["weights"].verdict == "ok"
    assert found["eval forward"].verdict == "rounding"
    assert found["gradients"].verdict == "DIFFERS"
    assert found["learning rate"].verdict == "ok"
    assert [item.name for item in found["learning rate"].differences] == ["update 1", "update 2"]
    assert [item.name for item in found["BatchNorm statistics after update 1"].differences] == ["mean"]


def test_a_loss_counts_at_least_what_its_logits_are_off_by():
    ours, theirs, exact = traces(losses=5e-4)
    theirs.losses = exact.losses  # close to float64 by luck
    found = stages(ours, theirs, exact)
    assert found["loss"].verdict == "rounding"
    assert found["loss"].differences[0].rounding == pytest.approx(1e-3)
    theirs.train_logits = exact.train_logits
    found = stages(ours, theirs, exact)
    assert found["loss"].verdict == "DIFFERS"


def test_what_flipped_ties_change_is_rounding():
    ours, theirs, exact = traces(gradients=1e-2)
    flipped = traces()[2]
    flipped.gradients = {"w": np.full(4, 1.01)}
    assert stages(ours, theirs, exact)["gradients"].verdict == "DIFFERS"
    found = stages(ours, theirs, exact, flipped)
    assert found["gradients"].verdict == "rounding"


def test_what_one_side_does_not_keep_or_nobody_has_is_skipped_with_a_note():
    found = stages(*traces(), order=["w"])
    momentum, later = found["momentum after update 1"], found["weights after update 5"]
    statistics = found["BatchNorm statistics after update 1"]
    assert {stage.verdict for stage in (momentum, later, statistics)} == {"skipped"}
    assert (momentum.note, later.note, statistics.note) == ("one side keeps none", "there are none", "there are none")


def test_both_frameworks_get_the_same_images(torch):
    assert inputs_stage(np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)).verdict == "ok"
