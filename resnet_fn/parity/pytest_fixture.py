"""A pytest fixture for other projects: from resnet_fn.parity.pytest_fixture import parity.

docs/parity.md#in-a-projects-ci has an example. MindSpore is imported when a test calls the fixture.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from resnet_fn.parity.ladder import Ladder

Check = Callable[..., "Ladder"]

_MOST = 20  # the most lines of a failure's message


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Check:
    """Return a function that compares a MindSpore net with a trace that `parity record` wrote.

    The function takes the trace's path and, as "FILE:FUNCTION", `net`; if the trace has its own
    loss or optimizer, `loss`, `optimizer` or `step`; and `reference`, the recorded torch module, to
    search it for causes where PyTorch is installed. The `mode` "pynative" compiles nothing. Paths
    are relative to the test's folder, or to pytest's root folder. The test fails if a stage differs
    or is undecided.
    """
    folders = request.path.parent, request.config.rootpath

    def check(
        trace: str,
        *,
        net: str = "",
        model: str = "",
        loss: str = "",
        optimizer: str = "",
        step: str = "",
        reference: str = "",
        mode: str = "graph",
    ) -> "Ladder":
        if net and model:
            pytest.fail("parity: net: give either net or model, not both", pytrace=False)
        from resnet_fn.parity.asked import Asked
        from resnet_fn.parity.commands import replayed

        has_torch = importlib.util.find_spec("torch") is not None
        locations = {
            "net": net,
            "our_loss": loss,
            "our_optimizer": optimizer,
            "our_step": step,
            "searched": reference if has_torch else "",
        }
        fields: dict[str, Any] = {
            name: _inside(folders, location) for name, location in locations.items() if location
        }
        asked = Asked(model=model, mode=mode, **fields)
        try:
            _, ladder = replayed(asked, Path(_inside(folders, trace)))
        except ValueError as error:
            pytest.fail(f"parity: {error}", pytrace=False)
        request.node.user_properties.append(("parity", _lines(ladder)[0]))
        if not ladder.agrees:
            pytest.fail("\n".join([f"parity: {trace}", *_lines(ladder)]), pytrace=False)
        return ladder

    return check


def _inside(folders: tuple[Path, ...], location: str) -> str:
    """Return a path, or "FILE:FUNCTION", in the first folder that has the file."""
    file, colon, function = location.rpartition(":")
    path = Path(file if colon else location)
    known = [folder / path for folder in folders if (folder / path).exists()]
    return f"{[*known, path][0]}{colon}{function if colon else ''}"


def _lines(ladder: "Ladder") -> list[str]:
    """Return the verdict, with stage, layer, cause and the settings that differ."""
    from resnet_fn.parity.show.table import findings, settings

    lines = findings(ladder)
    if ladder.settings:
        lines += ["settings that differ:", *(f"  {line}" for line in settings(ladder))]
    return lines[:_MOST]
