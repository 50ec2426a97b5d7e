"""One update in one compiled function, in two with the sum over the ranks between them, and in none."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.models import create_model
from resnet_fn.update.gradients import each
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import momentum_sgd, weight_decay_groups
from resnet_fn.update.step import make_train_step

pytestmark = pytest.mark.usefixtures("device")


def both_ranks(tensors):
    """The sum over two ranks of which the other has just the same."""
    return each(double, tensors)


def double(tensor):
    return tensor * 2.0


def run(mode, accumulate, loss=None, updates=2):
    """Updates of one of two ranks, the second with NaN in its batch; all that is known after each."""
    mindspore.set_seed(1)
    net = create_model("resnet8", num_classes=4, in_channels=1)
    optimizer, scaler = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9, nesterov=True), DynamicLossScaler(8.0)
    step = make_train_step(
        *(net, loss or make_loss(0.1), optimizer),
        scaler=scaler,
        clip_norm=0.5,
        accumulate=accumulate,
        workers=2,
        all_reduce=both_ranks,
        mode=mode,
    )
    rng, seen = np.random.default_rng(0), []
    for update in range(updates):
        images = rng.normal(size=(8, 1, 8, 8)).astype(np.float32)
        images[0] = np.nan if update == 1 else images[0]
        result = step(Tensor(images), Tensor(rng.integers(0, 4, 8).astype(np.int32)), 0.1, Tensor(np.float32([3])))
        seen += [tensor.asnumpy() for tensor in result]
    state = (*net.get_parameters(), *optimizer.state, *scaler.state())
    return seen, {parameter.name: parameter.asnumpy() for parameter in state}


@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sums_between_two_compiled_functions_give_the_same_bits(accumulate):
    (results, state), (split, split_state) = run("graph", accumulate), run("split", accumulate)
    assert results[3].tolist() == [6.0, 0.0, 0.0]  # the rank's values, twice; nothing is broken
    assert results[8].tolist() == [6.0, 2.0, 0.0]
    assert [a.tobytes() for a in results] == [b.tobytes() for b in split]
    assert {name: value.tobytes() for name, value in state.items()} == {
        name: value.tobytes() for name, value in split_state.items()
    }


def test_nothing_is_compiled_for_print_and_pdb():
    real, seen = make_loss(0.1), []

    def loss(logits, labels):
        seen.append(logits.asnumpy())  # a compiled function would refuse, or run it once, while it compiles
        return real(logits, labels)

    results, state = run("graph", 1, updates=1)
    plain, plain_state = run("pynative", 1, loss, updates=1)
    assert [logits.shape for logits in seen] == [(8, 4)]
    for a, b in zip(results, plain, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5)
    for name, value in state.items():
        assert np.linalg.norm(plain_state[name] - value) <= 1e-5 * np.linalg.norm(value) + 1e-9, name
