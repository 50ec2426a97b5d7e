"""These functions copy MindSpore Parameters to NumPy arrays and back."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.manifest import CheckpointError
from resnet_fn.checkpoint.tensor_file import Arrays, bad_values
from resnet_fn.config.wording import first_few

if TYPE_CHECKING:
    from mindspore import Parameter

    from resnet_fn.models.untrained import Buffer
    from resnet_fn.update.state import TrainState

    Variables = Sequence[Parameter | Buffer]


def copy_arrays(
    parameters: "Variables", into: dict[str, np.ndarray] | None = None
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


def check_finite(arrays: Arrays, source: object, infinite: Collection[str] = ()) -> None:
    """Raise ValueError if a value is NaN, or is infinite in an array that is not named in
    `infinite`.

    A net with NaN or infinite weights may have finite outputs.
    """
    counts = []
    for name, array in sorted(arrays.items()):
        if count := int(bad_values(array, name in infinite).sum()):
            counts.append(f"{count} of {array.size} values of {name}")
    if counts:
        raise ValueError(
            f"{source} contains NaN or infinity ({first_few(counts)}); "
            "give other weights (evaluate and convert accept these with --allow-non-finite)"
        )


def saved_variables(variables: "Variables", arrays: Arrays) -> "Variables":
    """Return `variables` without the buffers that `arrays` lack."""
    from mindspore import Parameter

    return [
        variable
        for variable in variables
        if isinstance(variable, Parameter) or variable.name in arrays
    ]


def missing_buffers(variables: "Variables", arrays: Arrays) -> str:
    """Return a note on buffers in `variables` that `arrays` lack, or ""."""
    present = {variable.name for variable in saved_variables(variables, arrays)}
    names = [variable.name for variable in variables if variable.name not in present]
    return (
        f"has no values of the buffers {first_few(names)}, which keep their values" if names else ""
    )


def check_fit(parameters: "Variables", arrays: Arrays, source: object) -> None:
    """Raise CheckpointError if names or shapes of `parameters` and `arrays` differ."""
    if faults := misfits({parameter.name: parameter.shape for parameter in parameters}, arrays):
        differences = "; ".join(f"{kind}: {first_few(names)}" for kind, names in faults.items())
        raise CheckpointError(
            f"{source} belongs to another net ({differences}); give this checkpoint's net or recipe"
        )


def assign_all(parameters: "Variables", arrays: Arrays, source: object) -> None:
    """Copy `arrays` into `parameters`, which may contain buffers that `arrays` lack.

    If other names or shapes in the two differ, raise CheckpointError and copy nothing.
    """
    parameters = saved_variables(parameters, arrays)
    check_fit(parameters, arrays, source)
    assign(parameters, arrays)


def restore_state(state: "TrainState", checkpoint: Checkpoint) -> None:
    """Copy a checkpoint into the Parameters and buffers of `state`. Compiled functions use the new
    values of Parameters.

    If an error is raised, nothing was copied.

    Raises:
        CheckpointError: If the names or shapes in the checkpoint differ from `state`.
        ValueError: If the checkpoint contains NaN, or infinity where `state` had none at first.
    """
    pairs = (
        (saved_variables(state.of_net, checkpoint.weights), checkpoint.weights),
        (state.training, checkpoint.training),
    )
    for variables, arrays in pairs:
        check_finite(arrays, checkpoint.path, state.infinite)
        check_fit(variables, arrays, checkpoint.path)
    for variables, arrays in pairs:
        assign(variables, arrays)


def assign(parameters: "Variables", arrays: Arrays) -> None:
    """Copy arrays into the Parameters and buffers of the same names. Compiled functions use the new
    values of Parameters.
    """
    # here, so that checkpoints can be written and verified without MindSpore
    from mindspore import Parameter, Tensor, ops

    write = ops.Assign()
    for parameter in parameters:
        target = parameter if isinstance(parameter, Parameter) else parameter.tensor
        # Compiled functions do not see values that `set_data` or `load_param_into_net` sets.
        write(target, Tensor(np.array(arrays[parameter.name])).astype(parameter.dtype))
