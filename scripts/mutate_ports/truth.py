"""Decide without the ladder whether a mutant computes something else than the original port.

Both run in MindSpore, uncompiled, on 50 draws of inputs, states, modes and updates.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

SAME, DIFFERS, FAILS = "same", "differs", "fails"

_DRAWS = 50
_BOUND = 1e-4  # the largest relative error of two runs that compute the same
_RATE, _DECAY = 0.05, 0.02  # of the updates by plain SGD
_FIRST = 4  # a mutant that fails on so many draws fails on all

Results = dict[str, np.ndarray]


class Trial:
    """The original port of a task, with its results on all draws."""

    def __init__(self, task: ModuleType, original: ModuleType) -> None:
        self._task = task
        self._states = [_drawn_state(original.build, draw) for draw in range(_DRAWS)]
        self._expected = [self._run(original, draw) for draw in range(_DRAWS)]
        self._initial = _initial(original.build)
        for draw in range(_FIRST):
            if where := self._apart(draw, self._run(original, draw)):
                raise RuntimeError(f"the original does not repeat draw {draw}: {where}")

    def decide(self, mutant: ModuleType) -> tuple[str, str]:
        """Return SAME, DIFFERS or FAILS, and where or why."""
        accepted, error = 0, ""
        for draw in range(_DRAWS):
            try:
                got = self._run(mutant, draw)
            except Exception as failed:
                error = f"{type(failed).__name__}: {str(failed).strip().partition(chr(10))[0]:.150}"
                if accepted == 0 and draw == _FIRST:
                    break
                continue
            accepted += 1
            if where := self._apart(draw, got):
                return DIFFERS, f"draw {draw}, {where}"
        if not accepted:
            return FAILS, error
        where = _initial_apart(_initial(mutant.build), self._initial)
        return (DIFFERS, where) if where else (SAME, "")

    def _run(self, port: ModuleType, draw: int) -> Results:
        """Return the results of one draw: for each update, evaluation before it; evaluation at the
        end.
        """
        _seed(draw)
        net, rng, start = port.build(), np.random.default_rng([1, draw]), self._states[draw]
        for path, parameter in net.parameters_and_names():
            if path in start and parameter.shape == start[path].shape:
                parameter.set_data(Tensor(start[path], parameter.dtype))
        make = self._task.batch if draw % 2 == 0 else self._task.other
        results: Results = {}
        for index in range(1 + draw % 3):
            inputs, labels = make(rng)
            net.set_train(False)
            results |= _leaves(_call(net, inputs), f"{index} outputs")
            results |= _moved(net, start, f"{index} evaluation")
            _seed(100 * draw + index)  # the masks of dropout
            results |= _update(net, port, inputs, _tensors(labels), index)
            results |= _moved(net, start, f"{index} update")
        net.set_train(False)
        return results | _leaves(_call(net, inputs), "last outputs")

    def _apart(self, draw: int, got: Results) -> str:
        """Return the first result that differs from the original's, or an empty string."""
        expected, start = self._expected[draw], self._states[draw]
        gradients = [one for name, one in expected.items() if " gradient of " in name]
        all_gradients = float(np.sqrt(sum(_norm(one) ** 2 for one in gradients)))
        for name in dict.fromkeys([*expected, *got]):
            least = 0.0  # the smallest size that an error is relative to
            if " gradient of " in name:
                least = 1e-4 * all_gradients
            elif " moved " in name:
                least = 1e-3 * _norm(start[name.partition(" moved ")[2]])
            if name not in got or name not in expected:
                only = got if name in got else expected
                if _norm(only[name]) > _BOUND * least:
                    return f"{name}: {'only in' if name in got else 'missing in'} the mutant"
            elif got[name].shape != expected[name].shape:
                return f"{name}: shape {got[name].shape} for {expected[name].shape}"
            elif (error := _distance(got[name], expected[name], least)) > _BOUND:
                return f"{name}: {error:.1e}"
        return ""


def _seed(number: int) -> None:
    mindspore.set_seed(1 + number)
    np.random.seed(1 + number)


def _drawn_state(build: Callable[[], nn.Cell], draw: int) -> Results:
    """Return the state of a new net; in half of the draws, float arrays are drawn around it."""
    _seed(draw)
    rng, values = np.random.default_rng([0, draw]), {}
    for path, parameter in build().parameters_and_names():
        value = values[path] = parameter.numpy().copy()
        if value.dtype.kind != "f" or draw % 4 < 2:
            continue
        tiny = value.size > 1 and (value == value.flat[0]).all() and abs(value.flat[0]) < 0.01
        if tiny and value.flat[0] > 0:  # such as LayerScale
            new = rng.uniform(0.2, 0.8, value.shape)
        elif tiny:
            new = rng.uniform(0.1, 0.3, value.shape) * rng.choice([-1, 1], value.shape)
        elif (value > 0).all():
            new = value * np.exp(0.3 * rng.normal(size=value.shape))
        else:
            size = np.abs(value).mean() or 3.0  # a number of updates
            new = value + np.abs(0.3 * size * rng.normal(size=value.shape))
        values[path] = np.asarray(new, value.dtype)
    return values


def _tensors(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _tensors(one) for name, one in tree.items()}
    return tuple(map(_tensors, tree)) if isinstance(tree, tuple) else Tensor(tree)


def _leaves(tree: Any, name: str) -> Results:
    """Return outputs as arrays by name."""
    if isinstance(tree, dict):
        tree = tuple(tree[key] for key in sorted(tree))
    if not isinstance(tree, tuple | list):
        return {name: np.array(tree.numpy() if isinstance(tree, Tensor) else tree)}
    found: Results = {}
    for index, one in enumerate(tree):
        found |= _leaves(one, f"{name}.{index}")
    return found


def _call(net: nn.Cell, inputs: Any) -> Any:
    tensors = _tensors(inputs)
    if isinstance(tensors, dict):
        return net(**tensors)
    return net(*tensors) if isinstance(tensors, tuple) else net(tensors)


def _update(net: nn.Cell, port: ModuleType, inputs: Any, labels: Any, index: int) -> Results:
    """Make one update of plain SGD, and return its outputs, loss and gradients."""
    net.set_train(True)
    paths = {id(one): path for path, one in net.parameters_and_names()}
    weights = mindspore.ParameterTuple(net.trainable_params())
    loss_of = getattr(port, "loss", ops.cross_entropy)

    def forward() -> Any:
        outputs = _call(net, inputs)
        return loss_of(outputs, labels), outputs

    (loss, outputs), gradients = mindspore.value_and_grad(forward, None, weights, has_aux=True)()
    results = _leaves(outputs, f"{index} training outputs") | {f"{index} loss": loss.numpy().copy()}
    for weight, gradient in zip(weights, gradients, strict=True):
        results[f"{index} gradient of {paths[id(weight)]}"] = gradient.numpy().copy()
        ops.assign(weight, weight - _RATE * (gradient + _DECAY * weight))
    return results


def _moved(net: nn.Cell, start: Results, when: str) -> Results:
    """Return the changes of the arrays that have moved."""
    changes = {}
    for path, parameter in net.parameters_and_names():
        value, before = parameter.numpy(), start.get(path)
        if before is not None and before.shape == value.shape and (value != before).any():
            changes[f"{when} moved {path}"] = value.astype(np.float64) - before
    return changes


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def _distance(a: np.ndarray, b: np.ndarray, least: float) -> float:
    """Return ‖a − b‖ / ‖b‖; inf where only one is finite."""
    if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    return _norm((x - y)[finite]) / (max(_norm(y[finite]), least) or 1.0)


def _initial(build: Callable[[], nn.Cell]) -> Results:
    """Return the initial values of a few nets, stacked."""
    nets = []
    for seed in range(4):
        _seed(seed)
        nets.append({path: one.numpy().copy() for path, one in build().parameters_and_names()})
    return {path: np.stack([one[path] for one in nets]) for path in nets[0]}


def _initial_apart(got: Results, expected: Results) -> str:
    """Return the first array that begins as another constant or follows another law."""
    for path, value in expected.items():
        new = got.get(path)
        if new is None or new.shape != value.shape or value.dtype.kind != "f":
            continue
        constant, of_new = (bool((one == one[:1]).all()) for one in (value, new))
        if constant != of_new:
            return f"{path} is drawn in one of both only"
        if constant and _distance(new, value, 0.0) > _BOUND:
            return f"{path} begins otherwise"
        if not constant:
            deviations, errors = (value.std(), new.std()), 6 / np.sqrt(value.size)
            shift = abs(new.mean() - value.mean()) / deviations[0]
            if shift > 1.5 * errors or abs(np.log(deviations[1] / deviations[0])) > 1.5 * errors:
                return f"{path} is drawn by another law"
    return ""
