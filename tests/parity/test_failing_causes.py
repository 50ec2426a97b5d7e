"""What fails while a cause is sought costs the hint, not the verdict: each search that crashed on a
real port.
"""

import numpy as np
import pytest
from mindspore import nn

from resnet_fn.parity.compare.notes import NoCause, first_found, settings_notes
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.explain import causes
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.update.optimizer import momentum_sgd
from small_nets import Ours, Theirs, draw, labels, ladder_of, ours, t, theirs, torch, vectors

pytestmark = pytest.mark.usefixtures("device")


class Broken:
    """A recording of which nothing can be read."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("stage", causes.STAGE_CAUSES, ids=title_of_stage)
def test_each_search_at_a_stage_may_fail(stage):
    case = causes.StageCase(Stage(stage), Broken(), Broken(), Broken(), Broken(), Broken())
    hints = causes.explain(case)
    assert len(hints) == 2  # of the search, and of what is computed
    assert all("Error" in hint for hint in hints)


def test_a_search_that_stops_hides_no_later_one():
    stopped = NoCause("the search for a cause stopped after 10 s")
    assert first_found(lambda: [stopped], lambda: ["a kernel"]) == ["a kernel", stopped]
    assert first_found(lambda: [stopped], list) == [stopped]
    assert first_found(lambda: ["a cause", stopped], lambda: ["a kernel"]) == ["a cause", stopped]


def test_the_search_keeps_layers_left_in_evaluation_mode():
    module = theirs(lambda net, x: net.head(net.part(x) * 0.5), t.BatchNorm1d(8))
    module.part.eval().running_mean.fill_(0.5)  # as of a backbone that was trained before

    def construct(net, x):
        return net.head(net.part(x) * (0.25 if net.training else 0.5))

    net = ours(construct, nn.BatchNorm1d(8))
    ladder = ladder_of(net, module, [(draw(4, 8), labels(4))], quick=False)
    (cause,) = ladder.first_computed.hints
    assert "multiplied by 0.5^2 for multiplied by 0.5 in the port" in cause


def test_a_comparison_of_settings_may_fail():
    """A layer of another version of the framework, whose momentum is a word."""
    x = np.ones((1, 1, 4, 4))
    sides = [
        Layer("norm", 0, "norm", "BatchNorm2d", {"momentum": momentum}, x, None, (), True)
        for momentum in (0.9, "small")
    ]
    (note,) = settings_notes(*([side] for side in sides), {"norm": "norm"})
    assert note.startswith("norm: ")
    assert "Error" in note


def test_changed_optimizers_do_not_divide_by_zero():
    """With β2 = 0 in the reference, a way of it has β2 = 1, and 1 − β^t is 0."""
    module, net = Theirs(t.Linear(8, 8), t.Tanh()), Ours(nn.Dense(8, 8), nn.Tanh())
    adam = lambda one: torch.optim.Adam(one.parameters(), 0.01, (0.9, 0.0))  # noqa: E731
    forgetful = momentum_sgd([(parameter, 0.0) for parameter in net.trainable_params()], 0.0)
    optimizers = {"optimizer": forgetful, "reference_optimizer": adam}
    ladder = ladder_of(net, module, vectors(), **optimizers)
    assert title_of_stage(ladder.first_stage) == "optimizer alone"
    assert not any("Error" in hint for hint in ladder.first_stage.hints)
