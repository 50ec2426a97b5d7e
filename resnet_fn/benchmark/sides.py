"""The sides of a comparison: the same net, batch and work in ours, PyTorch, `Model.train` and MindCV.

Run as a process by `interleave.Side`: `python -m resnet_fn.benchmark.sides KIND SPEC`.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from resnet_fn.runtime.waiter import ResultWaiter

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, CLIP, SMOOTHING = 0.1, 0.9, 5e-4, 1.0, 0.1

Step = Callable[[], None]
Run = Callable[[int], list[float]]


def batch(spec: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The batch that all sides work on: images float32 [N, 3, S, S], labels int32 [N]."""
    rng = np.random.default_rng(0)
    size = spec["image_size"]
    images = rng.normal(size=(spec["batch_size"], 3, size, size)).astype(np.float32)
    return images, rng.integers(0, spec["classes"], spec["batch_size"]).astype(np.int32)


def timed(step: Step) -> Run:
    """A function that runs steps and returns the seconds of each."""

    def run(steps: int) -> list[float]:
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        return seconds

    return run


def ours(spec: dict[str, Any]) -> Run:
    """The jitted step that training uses, and its way to wait."""
    from resnet_fn.runtime import process

    process.start("CPU", spec["threads"])
    import mindspore
    from mindspore import Tensor

    from resnet_fn.models import create_model
    from resnet_fn.update.loss import make_loss
    from resnet_fn.update.optimizer import momentum_sgd, weight_decay_groups
    from resnet_fn.update.step import make_train_step

    net = create_model(spec["model"], num_classes=spec["classes"], stem=spec["stem"])
    optimizer = momentum_sgd(weight_decay_groups(net, WEIGHT_DECAY), MOMENTUM, nesterov=True)
    train_step = make_train_step(
        net, make_loss(smoothing=SMOOTHING), optimizer, clip_norm=CLIP, accumulate=spec.get("accumulate", 1)
    )
    images, labels = batch(spec)
    waiter = ResultWaiter()

    def step() -> None:
        rate = Tensor(LEARNING_RATE, mindspore.float32)
        result = train_step(Tensor(images), Tensor(labels), rate)
        waiter.fetch(result, time.perf_counter())

    spec["gradient_bytes"] = sum(parameter.nbytes for parameter in net.trainable_params())
    return timed(step)


def torch_eager(spec: dict[str, Any], compiled: bool = False) -> Run:
    """PyTorch: the reference net, SGD, clip_grad_norm_, cross_entropy."""
    import torch

    from resnet_fn.parity.reference import reference_net

    if spec["threads"]:
        torch.set_num_threads(spec["threads"])
    torch.manual_seed(0)
    net = reference_net(spec["model"], num_classes=spec["classes"], stem=spec["stem"])
    forward = torch.compile(net) if compiled else net
    decay = [p for name, p in net.named_parameters() if p.ndim > 1]
    rest = [p for name, p in net.named_parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, LEARNING_RATE, MOMENTUM, nesterov=True)
    images, labels = (torch.from_numpy(array) for array in batch(spec))

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(images), labels.long(), label_smoothing=SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        loss.item()

    return timed(step)


def torch_compile(spec: dict[str, Any]) -> Run:
    """PyTorch with torch.compile over the net."""
    return torch_eager(spec, compiled=True)


def model_train(spec: dict[str, Any]) -> Run:
    """MindSpore's own `Model.train` in graph mode with its own convolutions; else the same net, loss, SGD and clip."""
    from resnet_fn.runtime import process

    process.start("CPU", spec["threads"])
    import mindspore
    from mindspore import Tensor, nn, ops

    from resnet_fn.update.loss import cross_entropy
    from resnet_fn.update.optimizer import weight_decay_groups

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    net = _plain_net(spec)
    pairs = weight_decay_groups(net, WEIGHT_DECAY)
    groups = [
        {"params": [p for p, decay in pairs if decay], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p, decay in pairs if not decay], "weight_decay": 0.0},
        {"order_params": [p for p, _ in pairs]},
    ]

    class Loss(nn.Cell):
        def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
            return cross_entropy(logits, labels, SMOOTHING)

    class TrainWithClip(nn.TrainOneStepCell):
        def construct(self, *inputs: Tensor) -> Tensor:
            loss = self.network(*inputs)
            gradients = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss))
            gradients = ops.clip_by_global_norm(gradients, CLIP)
            return ops.depend(loss, self.optimizer(gradients))

    optimizer = nn.SGD(groups, LEARNING_RATE, MOMENTUM, nesterov=True)
    model = mindspore.Model(TrainWithClip(nn.WithLossCell(net, Loss()), optimizer))
    return _by_model(model, *batch(spec))


def _by_model(model: Any, images: np.ndarray, labels: np.ndarray) -> Run:
    import mindspore

    class Clock(mindspore.Callback):
        """Notes when each step ends, after its loss is there."""

        def __init__(self) -> None:
            self.times = [time.perf_counter()]

        def step_end(self, run_context: Any) -> None:
            run_context.original_args().net_outputs.asnumpy()
            self.times.append(time.perf_counter())

        on_train_step_end = step_end

    def run(steps: int) -> list[float]:
        source = [(images, labels)] * steps
        dataset = mindspore.dataset.GeneratorDataset(source, ["images", "labels"], shuffle=False)
        clock = Clock()
        model.train(1, dataset, callbacks=[clock], dataset_sink_mode=False)
        return [after - before for before, after in zip(clock.times, clock.times[1:], strict=False)]

    return run


def mindcv(spec: dict[str, Any]) -> Run:
    """MindCV's trainer in graph mode: its train step, optimizer and loss, over the net of `model_train`."""
    from resnet_fn.runtime import process

    process.start("CPU", spec["threads"])
    import mindspore
    from mindcv.loss import create_loss
    from mindcv.optim import create_optimizer
    from mindcv.utils import create_trainer

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    net = _plain_net(spec)
    optimizer = create_optimizer(
        net.trainable_params(),
        opt="momentum",
        lr=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        momentum=MOMENTUM,
        nesterov=True,
        weight_decay_filter="norm_and_bias",
    )
    model = create_trainer(
        net,
        create_loss("CE", label_smoothing=SMOOTHING),
        optimizer,
        metrics=set(),
        amp_level="O0",
        amp_cast_list="[]",
        loss_scale_type="fixed",
        clip_grad=True,
        clip_value=CLIP,
    )
    return _by_model(model, *batch(spec))


def _plain_net(spec: dict[str, Any]) -> Any:
    """Our net with MindSpore's own convolutions."""
    from resnet_fn.models import create_model
    from resnet_fn.models.winograd import use_winograd

    net = create_model(spec["model"], num_classes=spec["classes"], stem=spec["stem"])
    use_winograd(net, False)
    return net


KINDS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "ours": ours,
    "torch": torch_eager,
    "torch_compile": torch_compile,
    "model_train": model_train,
    "mindcv": mindcv,
}


def serve(kind: str, spec: dict[str, Any]) -> None:
    """Build a side, run its first step, then do what standard input says."""
    run = KINDS[kind](spec)
    began = time.perf_counter()
    run(1)
    first = time.perf_counter() - began
    print("answer null", flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        if word == "run":
            answer: Any = run(int(arguments[0]))
        else:
            # ru_maxrss is in KiB on Linux
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            answer = {"peak_bytes": peak, "first_step_seconds": first}
            answer |= {"gradient_bytes": spec.get("gradient_bytes")}
        print("answer " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
