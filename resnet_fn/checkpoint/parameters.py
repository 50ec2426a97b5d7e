"""A net's Parameters are copied to arrays and back by exact names and shapes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from resnet_fn.checkpoint.folder import Arrays, Checkpoint, CheckpointError
from resnet_fn.config.hints import few

if TYPE_CHECKING:
    from mindspore import Parameter

    from resnet_fn.update.state import TrainState


def copy_arrays(parameters: "Sequence[Parameter]", into: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Copy Parameters to arrays by name: new ones, or those of an earlier call (`into`), because new memory is slow."""
    copies = {}
    for parameter in parameters:
        array = parameter.numpy()
        copies[parameter.name] = into[parameter.name] if into else np.empty_like(array, order="C")
        np.copyto(copies[parameter.name], array)
    return copies


def misfits(wanted: Mapping[str, Sequence[int]], arrays: Arrays) -> dict[str, list[str]]:
    """Return the names that do not fit, by kind: "missing", "unexpected", "of another shape"."""
    faults = {
        "missing": [name for name in wanted if name not in arrays],
        "unexpected": [name for name in arrays if name not in wanted],
        "of another shape": [
            f"{name} {tuple(arrays[name].shape)} instead of {tuple(shape)}"
            for name, shape in wanted.items()
            if name in arrays and tuple(arrays[name].shape) != tuple(shape)
        ],
    }
    return {kind: names for kind, names in faults.items() if names}


def check_finite(arrays: Arrays, source: object) -> None:
    """Reject NaN and infinity, which a ReLU can hide behind plausible outputs; a ValueError names and counts them."""
    bad = {name: array.size - int(np.isfinite(array).sum()) for name, array in sorted(arrays.items())}
    lines = [f"{count} of {arrays[name].size} values of {name}" for name, count in bad.items() if count]
    if lines:
        fix = "give other weights (evaluate and convert accept them with --allow-non-finite)"
        raise ValueError(f"{source}: not finite: {few(lines)}; {fix}")


def assign_all(parameters: "Sequence[Parameter]", arrays: Arrays, source: object) -> None:
    """Put arrays into Parameters, or none; a CheckpointError lists what is missing, unexpected or of another shape."""
    if faults := misfits({parameter.name: parameter.shape for parameter in parameters}, arrays):
        text = "; ".join(f"{kind}: {few(names)}" for kind, names in faults.items())
        raise CheckpointError(f"{source}: belongs to another net ({text}); give the net or recipe it was saved with")
    assign(parameters, arrays)


def restore_state(state: "TrainState", checkpoint: Checkpoint) -> None:
    """Restore all that an update changes; a CheckpointError for another net's, a ValueError if not finite."""
    check_finite({**checkpoint.weights, **checkpoint.training}, checkpoint.path)
    assign_all(state.weights, checkpoint.weights, checkpoint.path)
    assign_all(state.training, checkpoint.training, checkpoint.path)


def assign(parameters: "Sequence[Parameter]", arrays: Arrays) -> None:
    """Put arrays into the Parameters of the same names and shapes, so that compiled functions see them."""
    from mindspore import Tensor, ops  # here, so that checkpoints can be written and verified without MindSpore

    write = ops.Assign()
    for parameter in parameters:
        # Not `set_data` or `load_param_into_net`, which compiled functions do not see.
        write(parameter, Tensor(np.array(arrays[parameter.name])).astype(parameter.dtype))
