"""In small nets on a CPU, parameters and the optimizer's state are views of a few vectors.

A kernel takes 10 to 20 µs before it computes anything, an all-reduce 0.3 ms, and an update has five operations for
each parameter: unscale, square, all-reduce, clip, optimizer. With vectors, one kernel updates dozens of parameters.

The step sees only an `Optimizer`: `join` makes vectors of the gradients, `update` takes these, and `attach` keeps
views and vectors in the same memory. Parameters and state keep their names and shapes.
"""

import math
from collections.abc import Callable, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.update.gradients import Gradients, map_tensors
from resnet_fn.update.groups import Groups, unzip_groups
from resnet_fn.update.state import Optimizer, make_buffers


class Vector:
    """One float32 vector, `whole`; the Parameters `views` share its memory, piece by piece. Only for a CPU."""

    def __init__(self, whole: Parameter, views: Sequence[Parameter]) -> None:
        self.whole, self.views = whole, tuple(views)
        self._memory = np.zeros(whole.shape, np.float32)
        pieces = np.split(self._memory, np.cumsum([math.prod(view.shape) for view in views])[:-1])
        self._arrays = [piece.reshape(view.shape) for piece, view in zip(pieces, views, strict=True)]
        self._addresses = [array.ctypes.data for array in (self._memory, *self._arrays)]
        self.attach()  # before any function is compiled, because it keeps reading the memory of that time

    def attach(self) -> None:
        """Make vector and views share memory (again after `set_data` of a view); the views' values are kept."""
        if self._is_attached():
            return
        for view, array in zip(self.views, self._arrays, strict=True):
            np.copyto(array, view.numpy())
            view.set_data(mindspore.from_numpy(array))
        self.whole.set_data(mindspore.from_numpy(self._memory))
        if not self._is_attached():  # training would not change the weights
            raise RuntimeError("this MindSpore copies what a Parameter is given; use 2.7.2 to 2.10")

    def _is_attached(self) -> bool:
        return [parameter.data_ptr() for parameter in (self.whole, *self.views)] == self._addresses


def over_vectors(make: Callable[[Groups], Optimizer], groups: Groups) -> Optimizer:
    """Make an optimizer over one vector for each weight decay and factor of the learning rate.

    The optimizer's state has the names and shapes of `make(groups)`. `make` must return an optimizer that updates each
    element by itself, with state that has the parameters' shapes or is scalar. The parameters must be float32.
    """
    by_setting: dict[tuple[float, float], list[Parameter]] = {}
    for parameter, decay, factor in zip(*unzip_groups(groups), strict=True):
        by_setting.setdefault((decay, factor), []).append(parameter)
    weights: dict[str, Vector] = {}
    for views in by_setting.values():
        name, zeros = f"vector.{len(weights)}", np.zeros(sum(math.prod(view.shape) for view in views), np.float32)
        weights[name] = Vector(Parameter(Tensor(zeros), name=name, requires_grad=False), views)
    optimizer = make([(vector.whole, *setting) for vector, setting in zip(weights.values(), by_setting, strict=True)])
    vectors, state = list(weights.values()), list[Parameter]()
    for parameter in optimizer.state:
        kind, _, name = parameter.name.partition(".")
        if name in weights:
            vectors.append(Vector(parameter, make_buffers(weights[name].views, kind)))
            state += vectors[-1].views
        else:
            state.append(parameter)
    ends = np.cumsum([len(views) for views in by_setting.values()]).tolist()
    spans = list(zip([0, *ends], ends, strict=False))

    def join(gradients: Gradients) -> Gradients:
        flat = map_tensors(_flatten, gradients)
        return tuple([ops.concat(flat[first:end]) for first, end in spans])  # compiled functions have no generators

    def attach() -> None:
        for vector in vectors:
            vector.attach()

    trained = tuple(view for views in by_setting.values() for view in views)
    return Optimizer(tuple(state), optimizer.update, trained, join, attach)


def _flatten(gradient: Tensor) -> Tensor:
    return gradient.reshape(-1)
