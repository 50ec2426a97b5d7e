"""Parameters as views of vectors compute the same update."""

import shlex
import types

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.models import create_model
from resnet_fn.telemetry.norms import LayerNorms
from resnet_fn.update import optimizer as optimizers
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import make_fast_optimizer, make_optimizer
from resnet_fn.update.state import make_state
from resnet_fn.update.step import StepPlan, make_train_step

pytestmark = pytest.mark.usefixtures("device")
RECIPE = Recipe(
    dataset="synthetic", model="resnet8", image_size=8, learning_rate=0.05, clip_norm=0.0
)


def batch(number):
    rng = np.random.default_rng(number)
    images = rng.normal(size=(8, 3, 8, 8)).astype(np.float32)
    return Tensor(images), Tensor(rng.integers(0, 10, 8).astype(np.int32))


def resnet8():
    mindspore.set_seed(1)
    return create_model("resnet8", num_classes=10)


def start(make, recipe, plan=StepPlan()):
    net = resnet8()
    optimizer = make(recipe, net)
    state = make_state(net, optimizer)
    return state, make_train_step(net, make_loss(), optimizer, state=state, plan=plan), optimizer


def values(state):
    return {
        parameter.name: parameter.asnumpy().copy()
        for parameter in (*state.weights, *state.training)
    }


@pytest.mark.parametrize(
    ("settings", "tolerance", "vectors", "micro_batches"),
    [
        ({}, 0, 2, 2),  # with weight decay, and without
        # both for each of the stem, three blocks and the last layer
        ({"layer_decay": 0.75}, 0, 10, 1),
        ({"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-3}, 1e-6, 2, 2),
        ({"optimizer": "lion", "nesterov": False, "learning_rate": 1e-4}, 1e-6, 2, 1),
    ],
)
def test_vectors_take_the_same_update(settings, tolerance, vectors, micro_batches):
    """To the bit if the kernel is; without clipping, because the global norm is rounded
    otherwise.
    """
    recipe = RECIPE.changed(**settings)
    plan = StepPlan(micro_batches=micro_batches)
    single, joined = (start(make, recipe, plan) for make in (make_optimizer, make_fast_optimizer))
    assert len(joined[2].join(joined[0].trained)) == vectors
    for number in range(3):
        norms = []
        by_group = []
        for state, step, _ in (single, joined):
            measuring = LayerNorms(state.trained, every=1)
            measuring.before(1)
            result = step(*batch(number), 0.05)
            norms.append(float(result.grad_norm))
            by_group.append(measuring.after(result.squares)["gradient"])
        assert norms[1] == pytest.approx(norms[0], rel=1e-6)
        assert by_group[1] == pytest.approx(by_group[0], rel=1e-5)
    after = values(joined[0])
    before = values(single[0])
    assert sorted(before) == sorted(after)
    for name, value in before.items():
        np.testing.assert_allclose(
            after[name], value, rtol=0, atol=tolerance * np.abs(value).max(), err_msg=name
        )


def test_what_set_data_gives_a_view_counts():
    """Before the first call, as by `load_param_into_net`, and later."""
    state, step, _ = start(make_fast_optimizer, RECIPE)
    weight = state.trained[0]
    buffer = state.optimizer[0]
    for number in range(2):
        weight.set_data(Tensor(np.full(weight.shape, 7.0, np.float32)))
        buffer.set_data(Tensor(np.full(buffer.shape, 3.0, np.float32)))
        step(*batch(number), 0.05)  # moves them by about 0.05 · 0.9 · 0.9 · 3
        for value, given in ((weight.asnumpy(), 7.0), (buffer.asnumpy(), 0.9 * 3.0)):
            assert (value != given).any()
            np.testing.assert_allclose(value, given, atol=0.5)


def test_an_evaluation_compiled_first_sees_trained_weights():
    """As in a run that was stopped between an epoch and its evaluation, and resumes with that."""
    net = resnet8()
    optimizer = make_fast_optimizer(RECIPE, net)
    evaluate = make_eval_step(net, with_logits=True)
    step = make_train_step(net, make_loss(), optimizer)
    evaluate(*batch(0))
    for weight in optimizer.trained:
        mindspore.ops.assign(weight, weight * 0.5)  # as a checkpoint is restored
    halved = evaluate(*batch(0)).logits.asnumpy().copy()
    step(*batch(0), 0.5)
    after = evaluate(*batch(0)).logits.asnumpy().copy()
    fresh = make_eval_step(net, with_logits=True)(*batch(0)).logits.asnumpy()
    assert not np.allclose(halved, after)
    np.testing.assert_array_equal(after, fresh)


def is_joined(recipe, net):
    optimizer = make_fast_optimizer(recipe, net)
    return len(optimizer.join(net.trainable_params())) < len(net.trainable_params())


@pytest.mark.parametrize("settings", [{"optimizer": "lars"}, {"optimizer": "lamb"}, {"ema": 0.9}])
def test_lars_lamb_and_averages_get_no_vectors(settings):
    assert not is_joined(RECIPE.changed(nesterov=False, **settings), resnet8())


def test_larger_nets_and_cards_have_no_vectors(monkeypatch):
    net = resnet8()
    assert is_joined(RECIPE, net)
    card = types.SimpleNamespace(device_target="Ascend")
    with monkeypatch.context() as patch:
        patch.setattr(mindspore, "get_current_device", lambda: card)
        assert not is_joined(RECIPE, net)
    monkeypatch.setattr(optimizers, "_MOST", 78_000)  # the net has 78,042
    assert not is_joined(RECIPE, net)


TRAIN = "import sys; from resnet_fn.train import main; main(sys.argv[1:])"
FIRST = "import mindspore; (mindspore.Tensor([1.0]) + 1).asnumpy()\n"


@pytest.mark.slow
@pytest.mark.release
def test_vectors_compute_equal_updates_without_blocking_runs(python, last_state):
    """`--device CPU` on a card's host, a user's own 0, and an operation before this package is
    imported; resumed.
    """
    words = shlex.split(
        "--dataset synthetic --synthetic-samples 320 --model resnet8 --image-size 16 "
        "--batch-size 32 --accumulate 2 --checkpoint-every 1 --no-progress"
    )
    cases = {
        "blocking": ("", {}),
        "not": ("", {"MS_DEV_HOST_BLOCKING_RUN": "0"}),
        "first": (FIRST, {}),
    }
    for name, (before, given) in cases.items():
        for more in (("--epochs", "1", "--out-dir", name), ("--epochs", "2", "--resume", name)):
            python("-c", before + TRAIN, *words, *more, without="MS_DEV_HOST_BLOCKING_RUN", **given)
    states = [last_state(name) for name in cases]
    assert states[0][0]["update"] == 20
    first, *others = ((state["last"], arrays) for state, arrays in states)
    assert others == [first, first]
