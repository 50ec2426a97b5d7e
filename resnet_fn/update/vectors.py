"""This module joins the parameters and the optimizer's state of a small net to a few vectors, on a
CPU.

One kernel then updates dozens of parameters, which saves time, because each kernel takes 10 to 20
µs to start.
"""

import math
from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.update.gradients import Gradients, Parameters, map_tensors
from resnet_fn.update.groups import Groups, unzip_groups
from resnet_fn.update.state import Optimizer, make_buffers


class Vector:
    """Holds a float32 vector `whole`, and Parameters `views` that share the vector's memory on a
    CPU.
    """

    def __init__(self, whole: Parameter, views: Parameters) -> None:
        self.whole = whole
        self.views = tuple(views)
        self._memory = np.zeros(whole.shape, np.float32)
        pieces = np.split(self._memory, np.cumsum([math.prod(view.shape) for view in views])[:-1])
        self._arrays = [
            piece.reshape(view.shape) for piece, view in zip(pieces, views, strict=True)
        ]
        self._addresses = [array.ctypes.data for array in (self._memory, *self._arrays)]
        self.attach()  # before a function is compiled, which then always reads the same memory

    def attach(self) -> None:
        """Make the views share the vector's memory and keep the views' values.

        Call `attach` again after `set_data`.
        """
        if self._is_attached():
            return
        for view, array in zip(self.views, self._arrays, strict=True):
            np.copyto(array, view.numpy())
            view.set_data(mindspore.from_numpy(array))
        self.whole.set_data(mindspore.from_numpy(self._memory))
        if not self._is_attached():  # training would not change the weights
            raise RuntimeError(
                "Parameters cannot share memory in this MindSpore version; use MindSpore 2.7.2 to "
                "2.10"
            )

    def _is_attached(self) -> bool:
        return [parameter.data_ptr() for parameter in (self.whole, *self.views)] == self._addresses


def over_vectors(make: Callable[[Groups], Optimizer], groups: Groups) -> Optimizer:
    """Make an optimizer in which parameters with equal weight decay and learning-rate factor share
    one vector.

    `make` must return an optimizer that computes element by element, and whose state is scalar or
    has the shapes of the parameters. The result's state has the same names and shapes as in
    `make(groups)`. Parameters must be float32.
    """
    by_setting: dict[tuple[float, float], list[Parameter]] = {}
    for parameter, decay, factor in zip(*unzip_groups(groups), strict=True):
        by_setting.setdefault((decay, factor), []).append(parameter)
    weights: dict[str, Vector] = {}
    trained: list[Parameter] = []
    spans = []  # first and end of each vector's parameters in `trained`
    for views in by_setting.values():
        name = f"__vector__.{len(weights)}"
        zeros = np.zeros(sum(math.prod(view.shape) for view in views), np.float32)
        weights[name] = Vector(Parameter(Tensor(zeros), name=name, requires_grad=False), views)
        spans.append((len(trained), len(trained) + len(views)))
        trained += views
    optimizer = make(
        [
            (vector.whole, *setting)
            for vector, setting in zip(weights.values(), by_setting, strict=True)
        ]
    )
    vectors = list(weights.values())
    state = list[Parameter]()
    for parameter in optimizer.state:
        kind, _, name = parameter.name.partition(".")
        if name in weights:
            vectors.append(Vector(parameter, make_buffers(weights[name].views, kind)))
            state += vectors[-1].views
        else:
            state.append(parameter)

    def join(gradients: Gradients) -> Gradients:
        flat = map_tensors(_flatten, gradients)
        # compiled functions have no generators
        return tuple([ops.concat(flat[first:end]) for first, end in spans])

    def attach() -> None:
        for vector in vectors:
            vector.attach()

    return Optimizer(tuple(state), optimizer.update, tuple(trained), join, attach)


def _flatten(gradient: Tensor) -> Tensor:
    return gradient.reshape(-1)
