"""The sides of a comparison: the same net, batch and update in this package, PyTorch and
`Model.train`.

Run as a process by `interleave.Side`: `python sides.py KIND SPEC`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from interleave import Run, timed
from nets import build, recipe
from resnet_fn.config.recipe import Recipe
from resnet_fn.runtime import instructions, process
from resnet_fn.runtime.extras import import_extra
from resnet_fn.runtime.workers import Workers


def batch(spec: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The batch of all sides: images float32 [N, 3, S, S], labels int32 [N]."""
    rng = np.random.default_rng(0)
    size = spec["image_size"]
    images = rng.normal(size=(spec["batch_size"], 3, size, size)).astype(np.float32)
    return images, rng.integers(0, spec["classes"], spec["batch_size"]).astype(np.int32)


def our_step(net: Any, spec: dict[str, Any], workers: Workers = Workers()) -> Callable[[], None]:
    """The compiled step that training uses, all-reducing."""
    import mindspore
    from mindspore import Tensor

    from resnet_fn.update.exchange import with_all_reduce
    from resnet_fn.update.loss import make_loss
    from resnet_fn.update.optimizer import make_fast_optimizer
    from resnet_fn.update.step import StepPlan, make_train_step

    chosen = recipe(spec)
    train_step = make_train_step(
        net,
        make_loss(chosen.label_smoothing),
        make_fast_optimizer(chosen, net),
        workers=with_all_reduce(workers),
        plan=StepPlan(clip_norm=chosen.clip_norm),
    )
    images, labels = batch(spec)

    def step() -> None:
        rate = Tensor(chosen.learning_rate, mindspore.float32)
        train_step(Tensor(images), Tensor(labels), rate).packed.asnumpy()

    return step


def start(spec: dict[str, Any]) -> Workers:
    """Start this process, and choose how convolutions are computed as the training command does."""
    workers = process.start("CPU", spec["threads"])
    instructions.allow_choice()
    instructions.choose_for(spec["model"])
    return workers


def ours(spec: dict[str, Any]) -> Run:
    """This package."""
    start(spec)
    return timed(our_step(build(spec), spec))


def torch_step(net: Any, chosen: Recipe, forward: Any) -> Callable[[Any, Any, float], None]:
    """PyTorch's update: SGD, clip_grad_norm_, cross_entropy.

    `forward` computes the logits of `net`.
    """
    torch = import_extra("torch", "this comparison")
    from resnet_fn.parity.record.torch_recipe import decay_groups

    groups = decay_groups(net, chosen.weight_decay)
    optimizer = torch.optim.SGD(
        groups, chosen.learning_rate, chosen.momentum, nesterov=chosen.nesterov
    )

    def step(images: Any, labels: Any, learning_rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.zero_grad()
        smoothing = chosen.label_smoothing
        loss = torch.nn.functional.cross_entropy(
            forward(images), labels.long(), label_smoothing=smoothing
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), chosen.clip_norm)
        optimizer.step()
        loss.item()

    return step


def torch_net(spec: dict[str, Any]) -> Any:
    """The specification's net, as `nets.build`, but a torch Module of independent code."""
    from resnet_fn.parity.reference.nets import reference_net

    options = {name: spec[name] for name in ("stem", "image_size")}
    return reference_net(spec["model"], num_classes=spec["classes"], **options)


def torch_eager(spec: dict[str, Any], compiled: bool = False, channels_last: bool = False) -> Run:
    """PyTorch with the reference net."""
    torch = import_extra("torch", "this comparison")
    if spec["threads"]:
        torch.set_num_threads(spec["threads"])
    net, chosen = torch_net(spec), recipe(spec)
    images, labels = map(torch.from_numpy, batch(spec))
    if channels_last:
        net, images = (one.to(memory_format=torch.channels_last) for one in (net, images))
    step = torch_step(net, chosen, torch.compile(net) if compiled else net)
    return timed(lambda: step(images, labels, chosen.learning_rate))


def model_train(spec: dict[str, Any]) -> Run:
    """MindSpore's own `Model.train`: the same loss, SGD and clipping, MindSpore's own
    convolutions.
    """
    process.start("CPU", spec["threads"])
    import mindspore
    from mindspore import Tensor, nn, ops

    from resnet_fn.models.convolution import use_products
    from resnet_fn.update.groups import weight_decay_groups

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    net, chosen = build(spec), recipe(spec)
    use_products(net, False)
    pairs = weight_decay_groups(net, chosen.weight_decay)
    groups = [
        {"params": [p for p, decay in pairs if decay], "weight_decay": chosen.weight_decay},
        {"params": [p for p, decay in pairs if not decay], "weight_decay": 0.0},
        {"order_params": [p for p, _ in pairs]},
    ]
    clip_norm, loss = chosen.clip_norm, nn.CrossEntropyLoss(label_smoothing=chosen.label_smoothing)

    class TrainWithClip(nn.TrainOneStepCell):
        def construct(self, *inputs: Tensor) -> Tensor:
            loss = self.network(*inputs)
            gradients = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss))
            gradients = ops.clip_by_global_norm(gradients, clip_norm)
            return ops.depend(loss, self.optimizer(gradients))

    optimizer = nn.SGD(groups, chosen.learning_rate, chosen.momentum, nesterov=chosen.nesterov)
    model = mindspore.Model(TrainWithClip(nn.WithLossCell(net, loss), optimizer))

    def run(steps: int) -> list[float]:
        times = [time.perf_counter()]

        def note(run_context: Any) -> None:
            run_context.original_args().net_outputs.asnumpy()
            times.append(time.perf_counter())

        dataset = mindspore.dataset.GeneratorDataset(
            [batch(spec)] * steps, ["images", "labels"], shuffle=False
        )
        callback = mindspore.LambdaCallback(on_train_step_end=note)
        model.train(1, dataset, callbacks=[callback], dataset_sink_mode=False)
        return np.diff(times).tolist()

    return run


def loader(spec: dict[str, Any]) -> Run:
    """PyTorch's DataLoader: a step is an epoch, its seconds are per image."""
    from dataloader import read_epochs

    return read_epochs(**spec)


KINDS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "ours": ours,
    "ours_avx2": ours,
    "ours_all": ours,
    "torch": torch_eager,
    "torch_compile": partial(torch_eager, compiled=True),
    "torch_channels_last": partial(torch_eager, channels_last=True),
    "torch_channels_last_compile": partial(torch_eager, compiled=True, channels_last=True),
    "model_train": model_train,
    "loader": loader,
}


def as_their_users(kind: str) -> None:
    """Unset the variables that `import resnet_fn` sets and users of the other side do not; before
    its library loads.

    `Model.train` keeps the cap on oneDNN, in its favour: without it its convolutions would take a
    reference kernel.
    """
    if kind.startswith("torch"):
        os.environ.pop(instructions.VARIABLE, None)
    if kind.startswith("ours_"):  # as if the user had typed it
        os.environ[instructions.VARIABLE] = kind.removeprefix("ours_").upper()
        os.environ.pop(instructions.IS_DEFAULT, None)
    if kind.startswith("torch") or kind == "model_train":
        os.environ.pop("MS_DEV_HOST_BLOCKING_RUN", None)


def peak_memory() -> int:
    """This program's peak memory in bytes (`ru_maxrss` would include its parent's)."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def serve(kind: str, spec: dict[str, Any]) -> None:
    """Build a side, then run as many steps as each line of standard input asks for."""
    as_their_users(kind)
    run = KINDS[kind](spec)
    for line in sys.stdin:
        seconds = run(int(line))
        print(
            "answer " + json.dumps({"seconds": seconds, "facts": {"peak_bytes": peak_memory()}}),
            flush=True,
        )


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
