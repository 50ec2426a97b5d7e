"""These functions copy MindSpore Parameters to NumPy arrays and back."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from resnet_fn.checkpoint.folder import Arrays, Checkpoint
from resnet_fn.checkpoint.manifest import CheckpointError
from resnet_fn.config.hints import few

if TYPE_CHECKING:
    from mindspore import Parameter

    from resnet_fn.update.state import TrainState


def copy_arrays(
    parameters: "Sequence[Parameter]", into: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Copy Parameters to arrays by name.

    If `into` is an earlier result, its arrays are overwritten and reused.
    """
    copies = {}
    for parameter in parameters:
        array = parameter.numpy()
        copies[parameter.name] = into[parameter.name] if into else np.empty_like(array, order="C")
        np.copyto(copies[parameter.name], array)
    return copies


def misfits(wanted: Mapping[str, Sequence[int]], arrays: Arrays) -> dict[str, list[str]]:
    """Compare `arrays` with shapes `wanted`.

    Return names that are "missing", "unexpected" or "of another shape".
    """
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
    """Raise ValueError if a value is NaN or infinite.

    A net with NaN or infinite weights may have finite outputs.
    """
    bad = {
        name: array.size - int(np.isfinite(array).sum()) for name, array in sorted(arrays.items())
    }
    counts = [
        f"{count} of {arrays[name].size} values of {name}" for name, count in bad.items() if count
    ]
    if counts:
        fix = "give other weights (evaluate and convert accept these with --allow-non-finite)"
        raise ValueError(f"{source} contains NaN or infinity ({few(counts)}); {fix}")


def check_fit(parameters: "Sequence[Parameter]", arrays: Arrays, source: object) -> None:
    """Raise CheckpointError if names or shapes of `parameters` and `arrays` differ."""
    if faults := misfits({parameter.name: parameter.shape for parameter in parameters}, arrays):
        differences = "; ".join(f"{kind}: {few(names)}" for kind, names in faults.items())
        raise CheckpointError(
            f"{source} belongs to another net ({differences}); give this checkpoint's net or recipe"
        )


def assign_all(parameters: "Sequence[Parameter]", arrays: Arrays, source: object) -> None:
    """Copy `arrays` into `parameters`.

    If names or shapes in the two differ, raise CheckpointError and copy nothing.
    """
    check_fit(parameters, arrays, source)
    assign(parameters, arrays)


def restore_state(state: "TrainState", checkpoint: Checkpoint) -> None:
    """Copy a checkpoint into the Parameters of `state`. Compiled functions use the new values.

    If an error is raised, nothing was copied.

    Raises:
        CheckpointError: If the names or shapes in the checkpoint differ from `state`.
        ValueError: If the checkpoint contains NaN or infinity.
    """
    pairs = (state.weights, checkpoint.weights), (state.training, checkpoint.training)
    for parameters, arrays in pairs:
        check_finite(arrays, checkpoint.path)
        check_fit(parameters, arrays, checkpoint.path)
    for parameters, arrays in pairs:
        assign(parameters, arrays)


def assign(parameters: "Sequence[Parameter]", arrays: Arrays) -> None:
    """Copy arrays into the Parameters of the same names. Compiled functions use the new values."""
    # here, so that checkpoints can be written and verified without MindSpore
    from mindspore import Tensor, ops

    write = ops.Assign()
    for parameter in parameters:
        # Compiled functions do not see values that `set_data` or `load_param_into_net` sets.
        write(parameter, Tensor(np.array(arrays[parameter.name])).astype(parameter.dtype))
