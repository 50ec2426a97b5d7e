"""Adam written otherwise: from one update's arrays it is told how, and the right one is told nothing."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.parity.adam_causes import adam_causes
from resnet_fn.parity.trace import Trace

RNG = np.random.default_rng(0)
RATE = 1e-2
WEIGHTS = {
    "fc.weight": RNG.normal(size=(8, 6)).astype(np.float32),
    "fc.bias": 0.1 * RNG.normal(size=8).astype(np.float32),
}
GRADIENTS = {name: (0.01 * RNG.normal(size=w.shape)).astype(np.float32) for name, w in WEIGHTS.items()}
GRADIENTS["fc.weight"][0, 0] = 1e-6


@dataclasses.dataclass(frozen=True)
class Adam:
    """One first update, as the paper has it or not."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    coupled: float = 0.0
    decoupled: float = 0.0
    spared: tuple[str, ...] = ("bias",)
    corrected: tuple[bool, bool] = (True, True)
    before: bool = False

    def run(self) -> Trace:
        after, momentum, variance = {}, {}, {}
        for name, w in WEIGHTS.items():
            w = w.astype(np.float64)
            spared = name.rpartition(".")[2] in self.spared
            g = GRADIENTS[name].astype(np.float64) + (0 if spared else self.coupled) * w
            m, v = (1 - self.beta1) * g, (1 - self.beta2) * g * g
            m_hat = m / (1 - self.beta1) if self.corrected[0] else m
            v_hat = v / (1 - self.beta2) if self.corrected[1] else v
            eps = self.eps / np.sqrt(1 - self.beta2) if self.before else self.eps
            decay = (0 if spared else self.decoupled) * w
            arrays = (w - RATE * (m_hat / (np.sqrt(v_hat) + eps) + decay), m, v)
            after[name], momentum[name], variance[name] = (array.astype(np.float32) for array in arrays)
        state = {"momentum": momentum, "variance": variance}
        return Trace({}, dict(WEIGHTS), [RATE], [after], clipped=dict(GRADIENTS), state=state)


def hints(ours: Adam | Trace, theirs: Adam) -> list[str]:
    other = theirs.run()
    parts = {"start": other.start, "after": other.after[0], "clipped": other.clipped, **other.state}
    return adam_causes(ours.run() if isinstance(ours, Adam) else ours, parts, RATE)


# More are planted in test_faults.py.
COUPLED, DECOUPLED = "coupled (added to the gradient, as Adam)", "decoupled (taken from the weight, as AdamW)"
FAULTS = {
    f"weight decay on weight: 0.1 {COUPLED} here, 0.1 {DECOUPLED} in the reference (1 parameters, first fc.weight)": (
        Adam(coupled=0.1),
        Adam(decoupled=0.1),
    ),
    f"weight decay on bias: 0.1 {DECOUPLED} here, none in the reference (1 parameters, first fc.bias)": (
        Adam(decoupled=0.1, spared=()),
        Adam(decoupled=0.1),
    ),
    "Adam's bias correction of v is missing here; in the reference m and v are divided by 1 − β^t": (
        Adam(corrected=(True, False)),
        Adam(),
    ),
    "eps is added to √v before its bias correction here, added to the root √v̂ in the reference": (
        Adam(before=True),  # as nn.Adam has it; it shows in the one small gradient only
        Adam(),
    ),
    "eps 1e-05 here, 0.001 in the reference": (Adam(eps=1e-5), Adam(eps=1e-3)),
    "betas: β1 0.95 and β2 0.999 here, 0.9 and 0.999 in the reference": (Adam(0.95), Adam()),
}


@pytest.mark.parametrize("words", FAULTS)
def test_what_is_written_otherwise_is_named_and_nothing_else(words):
    assert hints(*FAULTS[words]) == [words]


def test_the_same_in_float32_is_told_nothing():
    for way in {*(pair[0] for pair in FAULTS.values()), *(pair[1] for pair in FAULTS.values())}:
        assert hints(way, way) == []


def test_an_update_that_nobody_knows_gets_no_words():
    ours = Adam().run()
    ours.state["variance"] = {name: np.abs(RNG.normal(size=w.shape)) for name, w in WEIGHTS.items()}
    assert hints(ours, Adam()) == []
