"""What several tests of the ladder share: torch and its seed, the tables in docs/parity.md, a
pair's matching.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest


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
    """table_in_docs(file, end): the lines of the table in docs/parity.md that a test file
    writes.
    """

    def lines(file: str, end: str) -> list[str]:
        page = (Path(__file__).parents[2] / "docs" / "parity.md").read_text(encoding="utf-8")
        return (
            page.partition(f"{Path(file).name} -->\n")[2]
            .partition(f"\n<!-- end of {end} -->")[0]
            .split("\n")
        )

    return lines


@pytest.fixture(scope="session")
def paired(torch: Any) -> Callable[..., Any]:
    """paired(net, module, inputs, modes): which is which, and both nets' layers, of the net with
    the module's weights.

    Layers are of these modes, by default evaluation and training, as compare_layers takes them.
    """
    from resnet_fn.parity.pair.matching import Outline, match, shapes_of
    from resnet_fn.parity.record import (
        mindspore_cell,
        mindspore_layers,
        torch_layers,
        torch_module,
    )

    port, reference = (mindspore_layers, mindspore_cell.state), (torch_layers, torch_module.state)

    def outline_of(recorder: Any, state: Any, net: Any, inputs: Any) -> Outline:
        roles, layers = recorder.roles_of(net), recorder.layers_of(net, inputs, False)
        return Outline(shapes_of(state(net)), layers, roles["tied"], roles["constants"])

    def pair(net: Any, module: Any, inputs: Any, modes: Sequence[str] = ("eval", "train")) -> Any:
        def layers_of(recorder: Any, net: Any) -> Any:
            return {mode: recorder.layers_of(net, inputs, mode == "train") for mode in modes}

        theirs, values = layers_of(torch_layers, module), torch_module.state(module)
        names = match(outline_of(*port, net, inputs), outline_of(*reference, module, inputs))
        if not names.problems:
            mindspore_cell.assign(net, names.rename(values))
        return names, layers_of(mindspore_layers, net), theirs

    return pair
