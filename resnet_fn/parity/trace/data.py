"""The data that is recorded of one side of the comparison.

Read `Trace` first, which is everything, and then `Run`, which is the numbers of its updates. What
was recorded of a layer is in layer.py, and of a dropout in drop.py.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np

from resnet_fn.parity.trace.drop import Drop, Dropping
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.stages import ArrayId, Key, StageId
from resnet_fn.parity.trace.tree import Arrays

# relative errors of the arrays of each stage. Their keys are of one type in each stage: `Key`, or
# `ArrayId` of losses alone.
Rounding = dict[StageId, dict[Any, float]]

# masks of the elements of integers and booleans that rounding may change, by stage
Changing = dict[StageId, dict[Key, np.ndarray]]

# settings of an optimizer: name of the setting → name of the parameter → number
ParameterSettings = dict[str, dict[str, float]]

# the names of two such settings; record/optimizer_settings.py has the others
RATE_SETTING, DECAY_SETTING = "learning rate", "weight decay"

# the words of a line about a number that only counts, or moves by one step or factor: few values of
# it were tried
IDLE_COUNTER = "counts, and no later value was seen to change an output"
IDLE_NUMBER = "moves evenly, and no later value was seen to change an output"

# the words of a line about a number that only the user's code can set
UNTRIED_NUMBER = "updates move it, and other values could not be tried"

# how the names of BatchNorm's statistics end, in MindSpore and in PyTorch
STATISTICS_NAMES = ("moving_mean", "moving_variance", "running_mean", "running_var")


@dataclasses.dataclass
class Probe:
    """The results of one side on one probe (a run of the net or of a layer on changed inputs)."""

    outputs: Arrays  # a net's outputs by name, or a layer's first output
    error: str  # why there are no outputs, or an empty string
    # the reference's rounding of each output
    rounding: dict[str, float] = field(default_factory=dict)
    # Numbers of the inputs, by which to see that the other side had other ones. Of the net: the norm
    # of each changed input. Of a layer: how many numbers the first unchanged input has, then the
    # norm of each input that is another array (of integers 0).
    further: tuple[float, ...] = ()


Probes = dict[str, dict[str, Probe]]  # layer's name ("" for the net) → probe's name → result


@dataclasses.dataclass
class Run:
    """The numbers that one side of the comparison computes in the updates of a plan.

    The order of the fields is that of the stored file.
    """

    # Before the updates, and of each update:

    eval_outputs: Arrays  # outputs on the first batch, in evaluation mode, before any update
    start: Arrays  # all parameters and statistics before the first update
    rates: list[float]  # the learning rate of each update
    # parameters and statistics after each of the first LATER (trace/plan.py) updates
    after: list[Arrays] = field(default_factory=list)
    # on each update's last micro-batch, before the update
    train_outputs: list[Arrays] = field(default_factory=list)
    # one for each update, computed before the update
    losses: list[float] = field(default_factory=list)
    # global gradient norm before clipping, one for each update
    norms: list[float] = field(default_factory=list)

    # Of update 1, except the moving average:

    # mean over micro-batches, before clipping
    gradients: Arrays = field(default_factory=dict)
    clipped: Arrays = field(default_factory=dict)  # `gradients` after clipping
    # `gradients` of each micro-batch, if there are several
    parts: list[Arrays] = field(default_factory=list)
    # the moving average after the last update, if there is one
    average: Arrays = field(default_factory=dict)
    # the trained parameters of PyTorch whose gradient is None on this batch: no output of the loss
    # depends on these, and no optimizer touches them
    no_gradient: list[str] = field(default_factory=list)

    # Further runs:

    # of each further batch, with the weights `start`
    later: list["Run"] = field(default_factory=list)
    # update 1 again, with masks, if a layer uses one
    dropped: list["Run"] = field(default_factory=list)
    # forward passes of the first batch again, with random numbers for constant arrays (in `start`)
    drawn: list["Run"] = field(default_factory=list)

    # What the updates of `after` have changed beside parameters and statistics:

    # like `eval_outputs`, after these updates: with the reference's weights and this
    # side's other state
    last_outputs: Arrays = field(default_factory=dict)
    # PyTorch's buffers (without statistics), and the attributes of layers that are numbers, if
    # these updates have changed them → the mode in which other values would change an output:
    # "evaluation", "training", or "" if neither
    moved: dict[str, str] = field(default_factory=dict)

    # Of one of several workers: the gradients that its all-reduce took and returned in update 1;
    # the statistics after its own part of that batch alone; the losses of this part, and in
    # evaluation mode of the batch and of all parts
    sent: Arrays = field(default_factory=dict)
    received: Arrays = field(default_factory=dict)
    own_statistics: Arrays = field(default_factory=dict)
    own_losses: list[float] = field(default_factory=list)


@dataclasses.dataclass
class Ties:
    """Functions such as `long`, `floor` and comparisons whose operands are so near to a step that
    rounding decides, and what changes if every such tie is decided otherwise.
    """

    lines: list[str]  # the places, as "net.py:12, long: 3 ties"
    rounding: Rounding  # the relative change of each array
    run: Run  # the numbers if every tie is decided otherwise


@dataclasses.dataclass
class Trace:
    """Everything that is recorded of one side of the comparison.

    A trace folder contains one recording. The order of the fields is that of the stored file; ways
    and tests pass the first six by position.

    PyTorch's side alone fills `rounding`, `changing`, `ties` and `buffers`; MindSpore's side alone
    `kernels`, `attributes` and `unmasked`. `flipped` is filled when a trace is stored (folder.py,
    small.py), and `workers` when those of several workers become one trace (ranks.py).
    """

    # The task, and what the net computes in it:

    framework: str  # "PyTorch 2.13.0", "MindSpore 2.10.0"
    plan: Plan  # the updates that were made
    initial: Arrays  # all parameters and statistics of the net as it was built
    # by mode, "eval", "train", "dropout" (with masks); before any update
    layers: dict[str, list[Layer]]
    run: Run  # the numbers that were computed

    # What rounding changes; and what is not read:

    # errors against float64 or under noise; {}: unknown
    rounding: Rounding = field(default_factory=dict)
    # of the port: how far inaccurate kernels move what it computes, by stage
    kernels: Rounding = field(default_factory=dict)
    # elements of integers that change in float64 or under noise; none is listed: none changes
    changing: Changing = field(default_factory=dict)
    # what the net returns that is not read, such as "logits boxes (generator)"
    unread: list[str] = field(default_factory=list)
    # width of a tie → the errors with flipped ties, and their number; {}: not stored
    flipped: dict[float, tuple[Rounding, int]] = field(default_factory=dict)
    ties: Ties | None = None  # of functions other than ReLU; None: there are none

    # What each array is:

    # parameters that are one array, by name
    tied: list[tuple[str, ...]] = field(default_factory=list)
    # the parameters that an update changes, by name
    trainable: list[str] = field(default_factory=list)
    # arrays that need no counterpart: not trained, no statistics
    constants: list[str] = field(default_factory=list)
    # PyTorch's buffers → whether the state dict has them
    buffers: dict[str, bool] = field(default_factory=dict)
    # tensors, NumPy arrays and numbers in attributes of the port's cells, by path; {} for a
    # reference
    attributes: Arrays = field(default_factory=dict)

    # What the recording noted:

    # changes that made both sides comparable, a line each
    notes: list[str] = field(default_factory=list)
    # the environment of the process that recorded (`environment`); empty: unknown
    environment: dict[str, str] = field(default_factory=dict)

    # Random numbers and dropout:

    # whether outputs in evaluation mode differ from call to call, before dropout is set to 0
    random_eval: bool = False
    # what draws random numbers in training mode, with dropout set to 0; empty if nothing does
    random_train: str = ""
    drops: list[Drop] | None = None  # the net's dropouts (`drops_of`); None: not recorded
    # the reference's dropouts whose masks this side could not use, by title
    unmasked: list[str] = field(default_factory=list)

    # What is computed or known beside the updates:

    probes: Probes = field(default_factory=dict)  # results on other inputs; {}: not computed
    # what no run of the reference exercises, a line each: limits that no number reaches, constants
    # without random numbers, outputs on which its loss fails
    limits: list[str] = field(default_factory=list)
    file: str = ""  # the user's file, "net.py, SHA-256 …"; empty for a net of this package
    # initial values of several nets (`several_builds`)
    builds: list[Arrays] = field(default_factory=list)
    # changes by the optimizer alone, by the number of its updates
    optimizer_alone: dict[int, Arrays] = field(default_factory=dict)
    # the loss on other outputs, by number of samples and factor of the outputs
    losses_alone: dict[ArrayId, float] = field(default_factory=dict)
    # of the optimizer, by setting, then by parameter
    optimizer_settings: ParameterSettings = field(default_factory=dict)
    # the trace of each of several workers, in the order of ranks; rank 0 has `run`
    workers: list["Trace"] = field(default_factory=list)

    @property
    def file_name(self) -> str:
        """The name of the user's file, without its hash."""
        return self.file.partition(",")[0]

    @property
    def counts(self) -> set[str]:
        """The arrays of a reference that count batches in custom norms.

        A custom norm may only count, and PyTorch's norms read none, so that --map alone pairs them.
        """
        listed = self.buffers  # without counts of batches; {} for a port
        return {*self.constants} & self.run.start.keys() - listed.keys() if listed else set()

    @property
    def dropping(self) -> Dropping:
        """A pair of the net's dropouts and its layers' executions in training mode with dropout
        switched off.
        """
        return self.drops or (), self.layers["train"]


def further_passes(*runs: Run) -> Iterator[tuple[dict[str, Any], tuple[Run, ...]]]:
    """Yield each further pass of runs of one task: its marks, which are fields of `StageId`, and
    the pass of each run.
    """
    later = zip(*(run.later for run in runs), strict=True)
    dropped = zip(*(run.dropped for run in runs), strict=True)
    drawn = zip(*(run.drawn for run in runs), strict=True)
    for batch, passes in enumerate(later, 2):
        yield {"batch": batch}, passes
    for passes in dropped:
        yield {"masked": True}, passes
    for passes in drawn:
        yield {"drawn": True}, passes
