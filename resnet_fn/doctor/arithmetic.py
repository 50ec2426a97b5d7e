"""These checks test what MindSpore computes on this machine.

Each check returns (ok, a line of text).
"""

import timeit

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.models.layers import Dense
from resnet_fn.models.resnet import batch_norm, conv
from resnet_fn.runtime.workers import Workers, sum_over_ranks
from resnet_fn.update.ascend import no_overflow
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.state import make_state
from resnet_fn.update.step import StepPlan, make_train_step

Answer = tuple[bool, str]

# Largest time of a convolution, divided by the time of a matrix product with as many
# multiplications. The quotient is
# 1 to 2 with oneDNN, up to 15 before MindSpore 2.9, and 110 with oneDNN's reference kernel.
_SLOW = 40


def _relative(values: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(values - exact) / np.linalg.norm(exact))


def batchnorm() -> Answer:
    """Check that the mean of a batch has weight 0.1 in BatchNorm's moving mean."""
    cell = batch_norm(1)  # a later MindSpore reverses the meaning of BatchNorm's momentum
    cell.set_train(True)
    batch = np.array([1.0, 3.0, 5.0, 11.0], np.float32).reshape(4, 1, 1, 1)
    mindspore.jit(cell.construct)(Tensor(batch)).numpy()
    weight = float(cell.moving_mean.numpy()[0]) / batch.mean()
    return bool(abs(weight - 0.1) < 1e-6), f"a batch has weight {weight:.3g} in the moving mean"


def nesterov() -> Answer:
    """Check two updates of SGD with Nesterov momentum and weight decay against float64."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=3)
    weight = Parameter(Tensor(value.astype(np.float32)), name="doctor.weight")
    update = momentum_sgd([(weight, 0.01)], 0.9, nesterov=True).update
    velocity = np.zeros(3)

    @mindspore.jit
    def step(gradient: Tensor, rate: Tensor) -> Tensor:
        update((gradient,), rate)
        return rate  # a function that returns nothing does nothing: MindSpore 2.10 drops the update

    for gradient in rng.normal(size=(2, 3)):
        step(Tensor(gradient.astype(np.float32)), Tensor(np.float32(0.1)))
        gradient = gradient + 0.01 * value
        velocity = 0.9 * velocity + gradient
        value = value - 0.1 * (gradient + 0.9 * velocity)
    error = _relative(weight.numpy(), value)
    return error < 1e-6, f"relative error {error:.0e} from float64 after two updates"


def convolution() -> Answer:
    """Check the precision of a 3x3 convolution, and on a CPU also the speed."""
    x = np.random.default_rng(0).normal(size=(2, 16, 8, 8)).astype(np.float32)
    cell = conv(16, 16, 3)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (1, 1, 3, 3))
    exact = np.einsum("nchwxyij,ocij->nohw", windows, cell.weight.numpy().astype(np.float64))
    error = _relative(cell(Tensor(x)).numpy(), exact)
    if mindspore.get_current_device().device_target != "CPU":
        return error < 1e-5, f"relative error {error:.0e}"  # HF32 has errors of 1e-4 and more
    large, images = conv(64, 64, 3), Tensor(np.ones((8, 64, 32, 32), np.float32))
    a, b = (Tensor(np.ones(shape, np.float32)) for shape in ((8 * 32 * 32, 64 * 9), (64 * 9, 64)))
    product = ops.MatMul()
    calls = (lambda: large(images).numpy(), lambda: product(a, b).numpy())
    seconds, of_product = (min(timeit.repeat(call, repeat=3, number=1)) for call in calls)
    ratio = seconds / of_product
    return (
        error < 1e-5 and ratio < _SLOW,
        f"relative error {error:.0e}, {ratio:.1f} x the time of a matrix product",
    )


def clip() -> Answer:
    """Check the norm and the clipping of large gradients against float64."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(size, np.float32) for size in (9 * 512 * 512, 1000)]
    exact = float(np.sqrt(sum((array.astype(np.float64) ** 2).sum() for array in arrays)))
    by_operation = hasattr(ops, "clip_by_global_norm")

    @mindspore.jit
    def both(large: Tensor, small: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        norm = global_norm((large, small))
        ours = clip_by_global_norm((large, small), norm, 1.0)
        theirs = clip_by_global_norm((large, small), norm, 1.0, by_operation)
        return norm, ours[1], theirs[1]

    norm, ours, theirs = (tensor.numpy() for tensor in both(*map(Tensor, arrays)))
    errors = {
        "norm": abs(float(norm) / exact - 1),
        "clipped": _relative(ours, arrays[1] / exact),
    }
    if by_operation:
        errors["ops.clip_by_global_norm"] = _relative(theirs, arrays[1] / exact)
    text = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    return max(errors.values()) < 1e-5, f"relative errors: {text}"


def transfer() -> Answer:
    """Check that arrays come back unchanged from the device, whether or not they are aligned to 64
    bytes.
    """
    memory = np.random.default_rng(0).integers(0, 256, 1 << 22, np.uint8)
    begin = -memory.ctypes.data % 64
    arrays = []
    for shift in (0, 1, 4, 60):
        part = memory[begin + shift :]
        for size in (1, 1000, 999_999):
            arrays.append(part[:size])
            if shift % 4 == 0:
                arrays.append(part[: 4 * size].view(np.float32))
    sent = [Tensor(array) for array in arrays]  # all are under way before the first is read
    wrong = sum(
        array.tobytes() != tensor.numpy().tobytes()
        for array, tensor in zip(arrays, sent, strict=True)
    )
    return not wrong, f"{wrong} of {len(arrays)} arrays come back changed"


def all_reduce(workers: Workers) -> Answer:
    """Check the sum over all workers for whole numbers, and for numbers with an infinite one."""
    bad = np.inf if workers.rank == 1 else 1.0
    total, infinite = sum_over_ranks(np.array([workers.rank + 1.0, bad], np.float32), workers)
    expected = workers.size * (workers.size + 1) / 2
    right = total == expected and not np.isfinite(infinite)
    return (
        right,
        f"the sum is {total:g} and should be {expected:g}, infinity arrives as {infinite:g}",
    )


def overflow() -> Answer:
    """Check that a float16 overflow is detected in the computation that overflows, and not in the
    next one.
    """

    @mindspore.jit
    def square(x: Tensor) -> tuple[Tensor, Tensor]:
        squared = x * x
        return squared, no_overflow((squared,))

    values = []
    noticed = []
    for x in (300.0, 2.0):  # 90,000 is beyond float16's 65,504
        squared, fine = square(Tensor(np.array([x, 1.0], np.float16)))
        values.append(float(squared.numpy()[0]))
        noticed.append(not bool(fine.numpy()))
    form = "infinity" if np.isinf(values[0]) else f"{values[0]:g}: this device saturates"
    return noticed == [
        True,
        False,
    ], f"300² in float16 is {form}; overflow noticed: {'yes' if noticed[0] else 'no'}"


def skip() -> Answer:
    """Check that a batch with NaN leaves the weights unchanged and halves the loss scale."""
    net = Dense(4, 3)
    scaler = DynamicLossScaler(initial=1024.0)
    weights = net.trainable_params()
    optimizer = momentum_sgd([(parameter, 0.0) for parameter in weights], 0.9)
    step = make_train_step(
        net,
        make_loss(0.0),
        optimizer,
        state=make_state(net, optimizer, scaler),
        plan=StepPlan(clip_norm=1.0),
    )
    labels = Tensor(np.zeros(2, np.int32))
    moved = []
    scales = []
    for value in (np.nan, 1.0):
        before = [parameter.numpy().copy() for parameter in weights]
        step(Tensor(np.full((2, 4), value, np.float32)), labels, 0.1).loss.numpy()
        moved.append(any((a != b.numpy()).any() for a, b in zip(before, weights, strict=True)))
        scales.append(float(scaler.scale.numpy()))
    right = (moved, scales) == ([False, True], [512.0, 512.0])
    return (
        right,
        f"with NaN the weights {'moved' if moved[0] else 'stayed'}, the scale went from 1024 to "
        f"{scales[0]:g}",
    )
