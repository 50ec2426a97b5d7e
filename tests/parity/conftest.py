"""A residual block in PyTorch, and a port of it to MindSpore under other names and in another order."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mindspore import Tensor, nn


@pytest.fixture(autouse=True)
def torchs_seed() -> None:
    """What a test draws from torch's generator is the same in any order."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")


@pytest.fixture
def table_in_docs() -> Callable[[str, str], list[str]]:
    """table_in_docs(file, end): the lines of the table in docs/parity.md that a test file writes."""

    def lines(file: str, end: str) -> list[str]:
        page = (Path(__file__).parents[2] / "docs" / "parity.md").read_text(encoding="utf-8")
        return page.partition(f"{Path(file).name} -->\n")[2].partition(f"\n<!-- end of {end} -->")[0].split("\n")

    return lines


@pytest.fixture(scope="session")
def reference(torch: Any) -> type:
    """A block whose shortcut convolution has the shape of its last one, under names of its own."""

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.inner = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
            self.inner_norm = torch.nn.BatchNorm2d(8)
            self.skip = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8))
            self.pool = torch.nn.AdaptiveAvgPool2d(1)
            self.head = torch.nn.Linear(8, 5)

        def forward(self, x):
            x = torch.relu(self.norm(self.first(x)))
            out = self.inner_norm(self.inner(torch.relu(x - 0.1)))
            return self.head(self.pool(torch.relu(out + self.skip(x))).flatten(1))

    return Reference


@pytest.fixture(scope="session")
def paired(torch: Any) -> Callable[..., Any]:
    """paired(net, module, inputs, modes): which is which, and both nets' layers, of the net with the module's weights.

    Layers are of these modes, by default evaluation and training, as compare_layers takes them.
    """
    from resnet_fn.parity import mindspore_side, torch_side
    from resnet_fn.parity.matching import Side, match, shapes_of

    def side_of(side: Any, net: Any, inputs: Any) -> Side:
        roles = side.roles_of(net)
        return Side(shapes_of(side.state(net)), side.layers_of(net, inputs, False), roles["tied"], roles["constants"])

    def pair(net: Any, module: Any, inputs: Any, modes: Sequence[str] = ("eval", "train")) -> Any:
        def layers_of(side: Any, net: Any) -> Any:
            return {mode: side.layers_of(net, inputs, mode == "train") for mode in modes}

        theirs, values = layers_of(torch_side, module), torch_side.state(module)
        names = match(side_of(mindspore_side, net, inputs), side_of(torch_side, module, inputs))
        if not names.problems:
            mindspore_side.assign(net, names.rename(values))
        return names, layers_of(mindspore_side, net), theirs

    return pair


class Ported(nn.Cell):
    """The same; the shortcut is computed first, and nothing has its old name.

    Args:
        classes: 5, as the reference.
        shift: between two layers, 0.1 as in the reference; anything else is a fault of no layer.
    """

    def __init__(self, classes: int = 5, shift: float = 0.1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn_a = nn.BatchNorm2d(8)
        self.short = nn.SequentialCell([nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(8)])
        self.body = nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1)
        self.bn_b = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.classify = nn.Dense(8, classes)
        self.shift = shift

    def construct(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn_a(self.stem(x)))
        short = self.short(x)
        x = self.bn_b(self.body(self.relu(x - self.shift)))
        return self.classify(self.relu(x + short).mean((2, 3)))


@pytest.fixture
def ported() -> type[Ported]:
    return Ported
