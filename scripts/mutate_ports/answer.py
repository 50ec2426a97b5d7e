"""What the ladder says of a port, and whether it names the place of a change."""

import dataclasses
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mindspore
import numpy as np
import torch
from mindspore import nn

from mutants import Mutant
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.record import record
from resnet_fn.parity.record.torch_side import TorchSide
from resnet_fn.parity.replay import replay
from resnet_fn.parity.show import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.tasks import ladder_recipe
from resnet_fn.parity.trace.data import Rounding
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.source import Masked, ProbeAnswer, Recorded, Source
from resnet_fn.recipes import recipe

UPDATES = 3

# what the ladder answers
DIFFERS, ERROR, UNDECIDED = "differs", "error", "undecided"
FINDING, NAMED, ACCEPTED = "finding", "named", "accepted"


@dataclasses.dataclass(frozen=True)
class Unsearched:
    """A source whose module is not searched for causes, which takes up to 10 s."""

    source: Source
    can_run = False

    @property
    def tie_widths(self) -> tuple[float, ...]:
        return self.source.tie_widths

    def flipped_ties(self, width: float) -> tuple[Rounding, int] | None:
        return self.source.flipped_ties(width)

    def probe_rounding(self, asked: AskedProbes) -> ProbeAnswer | None:
        return self.source.probe_rounding(asked)

    def with_fewer_masks(self, unmasked: Sequence[str]) -> Masked | None:
        return self.source.with_fewer_masks(unmasked)

    def run(self, edits: Any) -> Any:
        raise LookupError("causes are not searched")


@dataclasses.dataclass(frozen=True)
class Answer:
    """The ladder's answer on one port."""

    verdict: str
    where: str  # the first stage that differs or is undecided, or the error
    lines: frozenset[str]  # what the ladder says beside the table of stages, without digits


def record_reference(task: ModuleType, reference: ModuleType) -> Recorded:
    """Record the reference once, for all mutants of its port."""
    rng = np.random.default_rng(0)
    batches = [task.batch(rng) for _ in range(UPDATES)]
    settings = {"clip_norm": 0.0, "label_smoothing": 0.0, **task.SETTINGS}
    rate = settings.pop("learning_rate")
    of_task = ladder_recipe(recipe("digits"), 8, rate, settings)
    loss = getattr(reference, "loss", None)
    torch.manual_seed(0)
    plan = plan_of(of_task, batches, 1, 0, loss is not None)
    recorded = record(TorchSide(reference.build(), plan, loss, None, reference.build))
    return recorded._replace(source=Unsearched(recorded.source))


def ladder_of(recorded: Recorded, port: ModuleType) -> Ladder:
    """Compare a port with the recorded reference, as the command does."""
    mindspore.set_seed(1)
    np.random.seed(1)
    return replay(recorded, port.build(), build=port.build, loss=getattr(port, "loss", None))


def answer_of(recorded: Recorded, port: ModuleType) -> Answer:
    """Return the ladder's answer on a port."""
    try:
        ladder = ladder_of(recorded, port)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        return Answer(ERROR, f"{type(error).__name__}: {text:.200}", frozenset())
    lines = _lines(ladder)
    if stage := ladder.first_stage:
        return Answer(DIFFERS, title_of_stage(stage), lines)
    if ladder.undecided:
        return Answer(UNDECIDED, title_of_stage(ladder.undecided[0]), lines)
    return Answer(FINDING if ladder.probed.findings else ACCEPTED, "", lines)


def _lines(ladder: Ladder) -> frozenset[str]:
    """Return the ladder's lines without the table of stages, whose figures vary."""
    text = table.table(ladder).splitlines()[1 + len(ladder.stages) :]
    said = [one for one in text if one != ladder.coverage.line]
    return frozenset([*said, *ladder.coverage.not_exercised])


def named(answer: Answer, original: Answer, mutant: Mutant, net: nn.Cell) -> list[str]:
    """Return the lines that the original does not have, and that name the changed layer or line."""
    places = _places(mutant, net)
    new = new_lines(answer, original)
    return [line for line in new if any(one.search(line) for one in places)]


def new_lines(answer: Answer, original: Answer) -> list[str]:
    """Return the lines that the original does not have."""
    known = {_without_figures(line) for line in original.lines}
    return [line for line in sorted(answer.lines) if _without_figures(line) not in known]


def _without_figures(line: str) -> str:
    return re.sub(r"[0-9.e+-]*[0-9]", "#", line)


def _places(mutant: Mutant, net: nn.Cell) -> list[re.Pattern[str]]:
    """Return patterns of the changed line, of the layers of the changed class, and of the
    attributes in the changed statement.
    """
    paths = [path for path, cell in net.cells_and_names() if type(cell).__name__ == mutant.owner]
    names = [path for path in paths if path]
    names += [f"{path}.{one}".lstrip(".") for path in paths for one in mutant.attributes]
    patterns = [re.compile(rf"port\.py:{mutant.line}\b")]
    return patterns + [re.compile(rf"(?<![\w.]){re.escape(name)}\b") for name in names]
