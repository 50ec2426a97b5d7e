"""What the user asks of the ladder."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from resnet_fn.parity.pair.map_file import Corrections


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags of a command, as plain values. None and "" mean that the flag was not given."""

    # functions of the user's, as "FILE:FUNCTION"
    net: str = ""
    reference: str = ""
    loss: str = ""
    optimizer: str = ""
    our_loss: str = ""
    our_optimizer: str = ""
    our_step: str = ""
    inputs: str = ""
    searched: str = ""  # builds the recorded torch module, to search it for causes

    # the task
    model: str = ""
    recipe: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # that replace a recipe's
    learning_rate: float | None = None
    steps: int | None = None
    batch_size: int | None = None
    image_size: int | None = None
    in_channels: int | None = None
    num_classes: int | None = None
    accumulate: int | None = None
    seed: int | None = None

    # what is compared
    corrections: Corrections | None = None  # of names, from --map
    initialisation: bool = True
    quick: bool = False  # neither probes nor a search for causes
    strict: bool = False
    inputs_verdict: str = ""  # a line from the JSON file of `parity inputs`

    # how it runs, and what is written
    device: str = "CPU"
    threads: int = 0
    mode: str = "graph"
    like: str = ""
    out: str = ""
    small: bool = False  # whether to write a small trace
    layers: str = "all"
    probes: str = "all"
    json: str = ""
    report: str = ""

    @property
    def with_probes(self) -> bool:
        """Whether probes (extra forward passes on changed inputs) are computed."""
        return not self.quick and self.probes != "none"

    @property
    def custom(self) -> list[str]:
        """Return "loss" if --loss names a function of the user, and "optimizer" if --optimizer
        does.
        """
        return [name for name in ("loss", "optimizer") if getattr(self, name)]
