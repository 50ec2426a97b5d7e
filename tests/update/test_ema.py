import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, ops
from resnet_fn.run.build import build_components

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.state import averaged, averages_of, moving_average

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(("every", "start"), [(1, 0), (3, 0), (1, 4), (3, 4)])
def test_the_average_is_its_equation(every, start):
    values = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    weight = Parameter(Tensor(values[0]), name="weight")
    ema = moving_average([weight], 0.9, every, start)
    update = ema.update

    @mindspore.jit
    def follow(value):
        ops.assign(weight, value)
        update()
        return value

    expected = values[0].astype(np.float64)
    for count, value in enumerate(values, 1):
        follow(Tensor(value))
        if count <= start:
            expected = value.astype(np.float64)
        elif count % every == 0:
            expected = 0.9 * expected + 0.1 * value
        np.testing.assert_allclose(ema.averages[0].asnumpy(), expected, rtol=2e-6, atol=1e-6)
    assert [parameter.name for parameter in ema.state] == ["ema.weight", "ema_updates"]


RECIPE = Recipe(model="resnet8", batch_size=64, image_size=8, epochs=1, ema=0.5)


def test_a_skipped_update_moves_nothing_and_a_good_one_moves_once():
    components = build_components(RECIPE, RunOptions(accumulate=2), Workers())
    images, labels = components.feed.batch(0)
    rate = Tensor(0.1, mindspore.float32)
    before = [p.asnumpy().copy() for p in components.ema.state]
    components.train_step(Tensor(np.full_like(images, np.nan)), Tensor(labels), rate)
    assert all((p.asnumpy() == b).all() for p, b in zip(components.ema.state, before, strict=True))
    components.train_step(Tensor(images), Tensor(labels), rate)
    assert float(components.ema.state[-1].asnumpy()) == 1
    for parameter, average, old in zip(components.weights, components.ema.averages, before, strict=False):
        np.testing.assert_allclose(average.asnumpy(), (parameter.asnumpy() + old) / 2, rtol=1e-6, atol=1e-7)


def test_evaluation_sees_the_averages_and_training_gets_its_own_bits_back():
    components = build_components(RECIPE, RunOptions(), Workers())
    images, labels = map(Tensor, components.feed.batch(0))
    components.train_step(images, labels, Tensor(0.1, mindspore.float32))
    own = components.eval_step(images, labels).loss.asnumpy()
    bits = [p.asnumpy().tobytes() for p in components.weights]
    inside = []

    def evaluate_and_fail():
        with averaged(components.ema):
            inside.append(components.eval_step(images, labels).loss.asnumpy())
            assert all(
                (p.asnumpy() == a.asnumpy()).all()
                for p, a in zip(components.weights, components.ema.averages, strict=True)
            )
            raise KeyError

    with pytest.raises(KeyError):
        evaluate_and_fail()
    assert (inside[0] != own).any()
    assert [p.asnumpy().tobytes() for p in components.weights] == bits
    assert (components.eval_step(images, labels).loss.asnumpy() == own).all()


def test_the_averages_of_a_checkpoint_are_found_by_name():
    assert averages_of({"momentum.a": np.zeros(2)}) == {}
    found = averages_of({"momentum.a": np.ones(2), "ema.a": np.zeros(2), "ema_updates": np.ones(())})
    assert list(found) == ["a"]
    assert found["a"].sum() == 0
