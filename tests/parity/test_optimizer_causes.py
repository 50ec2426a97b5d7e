"""Optimizers alone: from changes of made-up weights each other way of writing one is named, and a
right one is not.
"""

import numpy as np
import pytest

from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.explain.optimizer_causes import optimizer_causes
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.optimizer_settings import torch_settings
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")

from resnet_fn.parity.record.torch_optimizer import optimizer_alone  # noqa: E402

o = torch.optim
NET = torch.nn.Sequential(torch.nn.Linear(30, 8), torch.nn.Linear(8, 3))
SHAPES = {name: tuple(parameter.shape) for name, parameter in NET.named_parameters()}
NAMES = NameMap("names", {name: whole_array(name) for name in SHAPES}, {}, ())
TASK = plan_of(recipe("digits"), make_batches(1, 4, 1, 2, 3), custom_optimizer=True)


def hints(ours, theirs):
    gradients = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    settings = torch_settings(
        theirs(NET).param_groups, {id(one): name for name, one in NET.named_parameters()}
    )
    alone = optimizer_alone(NET, TASK, theirs)
    run = Run({}, {}, [], gradients=gradients)
    trace = Trace("", TASK, {}, {}, run, optimizer_settings=settings, optimizer_alone=alone)
    return optimizer_causes(optimizer_alone(NET, TASK, ours), trace, NAMES, list(SHAPES))


def of(make, **options):
    return lambda net: make(net.parameters(), **options)


def biases_apart(net):
    groups = [[p for p in net.parameters() if (p.ndim > 1) == large] for large in (True, False)]
    return o.AdamW(
        [{"params": groups[0]}, {"params": groups[1], "weight_decay": 0.0}], weight_decay=0.01
    )


def two_groups(first, second):
    """Adam with betas for each of two layers."""
    return lambda net: o.Adam(
        [{"params": net[i].parameters(), "betas": b} for i, b in enumerate((first, second))]
    )


RIGHT = {
    "SGD": of(o.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Nesterov": of(o.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": of(o.Adam),
    "AdamW": biases_apart,
    "RMSprop": of(o.RMSprop, centered=True),
}
# More are rows of test_faults.py.
OTHERS = {
    "weight decay: 0.01 in the port, 0 in the reference (2 parameters, first 0.bias)": (
        of(o.AdamW),
        biases_apart,
    ),
    "β2: 0.95 in the port, 0.999 in the reference (4 parameters, first 0.weight)": (
        of(o.Adam, betas=(0.9, 0.95)),
        of(o.Adam),
    ),
    "centered: False in the port, True in the reference (4 parameters, first 0.weight)": (
        of(o.RMSprop),
        RIGHT["RMSprop"],
    ),
}


def test_causes_name_each_groups_own_numbers():
    assert hints(two_groups((0.99, 0.9), (0.95, 0.8)), two_groups((0.9, 0.99), (0.8, 0.95))) == [
        f"betas swapped: β1, β2: {port} in the port, {reference} in the reference (2 parameters, first "
        f"{first}.weight)"
        for port, reference, first in (("0.99, 0.9", "0.9, 0.99", 0), ("0.95, 0.8", "0.8, 0.95", 1))
    ]


@pytest.mark.parametrize("words", OTHERS)
def test_only_the_optimizers_real_difference_is_named(words):
    assert hints(*OTHERS[words]) == [words]


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_optimizer_gets_no_cause(name):
    assert hints(RIGHT[name], RIGHT[name]) == []


class NoEps(o.Adam):
    """An Adam of one's own that has betas alone."""

    def __init__(self, parameters):
        super().__init__(parameters)
        for group in self.param_groups:
            del group["eps"]

    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                one.data -= group["lr"] * one.grad.sign()


@pytest.mark.parametrize(
    ("ours", "theirs"), [(o.Rprop, o.Adam), (o.Adam, o.NAdam), (o.Adam, o.ASGD), (o.Adam, NoEps)]
)
def test_unknown_optimizers_get_no_cause(ours, theirs):
    assert hints(of(ours), of(theirs)) == []


def test_invented_arrays_are_repeatable_and_of_many_sizes():
    weights, gradients = made_up({"a": (70, 90), "b": ()})
    assert all(
        np.array_equal(one["a"], made_up({"a": (70, 90)})[i]["a"])
        for i, one in enumerate((weights, gradients))
    )
    assert (np.abs(weights["a"]).min() < 1e-2, np.abs(weights["a"]).max() > 50) == (True, True)
    sizes = np.abs(gradients["a"][gradients["a"] != 0])
    assert (sizes.min() < 1e-8, sizes.max() > 0.5, sizes.size < gradients["a"].size) == (
        True,
        True,
        True,
    )
