"""Build, record and compare both nets as the user asks for them."""

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from resnet_fn.parity import memory
from resnet_fn.parity.asked import Asked
from resnet_fn.parity.record.drawing import Drawing
from resnet_fn.parity.record.printed_once import lines_printed_once
from resnet_fn.parity.tasks import built
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.source import Recorded, StoredSource
from resnet_fn.runtime.user_files import imports_beside
from resnet_fn.runtime.workers import Workers

if TYPE_CHECKING:
    from resnet_fn.parity.ladder import Ladder


@dataclasses.dataclass(frozen=True)
class Nets:
    """Both nets of a comparison, as the user asks for them."""

    asked: Asked
    functions: dict[str, Any]  # the user's, by flag
    plan: Plan

    @property
    def initialisation(self) -> bool:
        """Whether the initial parameters are compared."""
        return compares_initialisation(self.asked, self.plan)

    def port_net(self, classes: int) -> Any:
        """Build the MindSpore net of --net, or a net of this package with `classes` classes."""
        from mindspore import nn

        from resnet_fn.models import create_model

        if "net" in self.functions:
            build = self.functions["net"]
            return built("--net", self.asked.net, build, nn.Cell, "a MindSpore Cell")
        net = self.plan.net
        return create_model(
            self.asked.model or net.model,
            initialisation=net.initialisation,
            zero_init_residual=net.zero_init_residual,
            precision=self.plan.precision,
            **_arguments(self.plan, classes),
        )

    def reference_net(self) -> Any:
        """Build the torch module of --reference, or the PyTorch version of a net of this
        package.
        """
        from torch.nn import Module

        from resnet_fn.parity.reference.nets import reference_net

        if "reference" in self.functions:
            build = self.functions["reference"]
            return built("--reference", self.asked.reference, build, Module, "a torch Module")
        net = self.plan.net
        return reference_net(
            self.asked.model or net.model,
            zero_init_residual=net.zero_init_residual,
            **_arguments(self.plan, net.classes),
        )

    def start_mindspore(self) -> Workers:
        """Set MindSpore's device and seed, and return the rank of this worker and the number of
        workers.
        """
        import mindspore

        from resnet_fn.runtime import process

        workers = process.start(self.asked.device, self.asked.threads)
        mindspore.set_seed(self.plan.seed + 1)  # MindSpore takes 0 for "no seed"
        return workers

    def record_reference(self, drawing: Drawing | None = None) -> Recorded:
        """Record the reference in PyTorch, with weights that `drawing` draws, if it is given."""
        import torch

        from resnet_fn.parity.record.record import record
        from resnet_fn.parity.record.torch_side import TorchSide

        own, build = self.functions.get, self.reference_net if self.initialisation else None
        torch.manual_seed(self.plan.seed)
        places = (self.asked.reference, self.asked.loss, self.asked.optimizer)
        with imports_beside(*places), lines_printed_once():
            net = self.reference_net()
            copies = memory.REFERENCE if self.asked.out else memory.BOTH
            memory.warn(_sizes(net.parameters()), len(self.plan.batches), copies)
            side = TorchSide(net, self.plan, own("loss"), own("optimizer"), build, drawing)
            return record(side, probes=self.asked.with_probes)

    def record_port(self, like: Trace | None, drawing: Drawing | None = None) -> Recorded:
        """Record the net in MindSpore, with the weights and weight decays of the recording `like`,
        or with weights that `drawing` draws, if it is given.
        """
        from resnet_fn.parity.pair.like import like_of
        from resnet_fn.parity.record.mindspore_cell import assign, run_in, state
        from resnet_fn.parity.record.mindspore_side import MindSporeSide
        from resnet_fn.parity.record.record import record
        from resnet_fn.parity.replay import check_own_functions, names_of
        from resnet_fn.update.exchange import with_all_reduce

        if like:
            check_own_functions(like.plan, self.functions)
        workers, own = with_all_reduce(self.start_mindspore()), self.functions
        build, make_optimizer = partial(self.port_net, 0), own.get("optimizer")
        places = (self.asked.net, self.asked.loss, self.asked.optimizer, self.asked.our_step)
        with imports_beside(*places), lines_printed_once(), run_in(self.asked.mode):
            net = build()
            memory.warn(_sizes(net.get_parameters()), len(self.plan.batches), memory.PORT)
            options: dict[str, Any] = {
                "optimizer": make_optimizer(net) if make_optimizer else None,
                "workers": workers,
            }
            options |= {"make_step": own["our_step"]} if "our_step" in own else {}
            options |= {"loss": own.get("loss"), "build": build if self.initialisation else None}
            side = MindSporeSide(net, self.plan, **options)
            if drawing:
                roles = side.roles()
                assign(net, drawing.weights(state(net), roles["trainable"], roles["tied"]))
            if like is None:
                return record(side, probes=self.asked.with_probes)
            names = names_of(side, like)
            if names.problems:
                differences = "; ".join(names.problems[:3])
                raise ValueError(
                    f"--like: {self.asked.like} must be a trace of this net, but {differences}"
                )
            reference = like_of(like, names, make_optimizer is not None)
            return record(side, reference, self.asked.with_probes)

    def replay(self, reference: Recorded, classes: int) -> "Ladder":
        """Compare the net in MindSpore with a recording of the reference."""
        from resnet_fn.parity.replay import replay

        own, build = self.functions, partial(self.port_net, classes)
        options: dict[str, Any] = {
            "mode": self.asked.mode,
            "initialisation": self.initialisation,
            "corrections": self.asked.corrections,
        }
        places = (
            self.asked.net,
            self.asked.our_loss,
            self.asked.our_optimizer,
            self.asked.our_step,
        )
        with imports_beside(*places), lines_printed_once():
            net = build()
            if isinstance(reference.source, StoredSource):
                memory.warn(_sizes(net.get_parameters()), len(self.plan.batches), memory.REPLAY)
            options |= {"optimizer": own["our_optimizer"](net)} if "our_optimizer" in own else {}
            options |= {"make_step": own["our_step"]} if "our_step" in own else {}
            options["quick"] = not self.asked.with_probes
            return replay(reference, net, build=build, loss=own.get("our_loss"), **options)


def compares_initialisation(asked: Asked, plan: Plan) -> bool:
    """Return whether the initial parameters are compared: as torchvision initialises them."""
    return asked.initialisation and plan.net.initialisation == "torchvision"


def _sizes(parameters: Iterable[Any]) -> list[int]:
    """Return the bytes of each parameter; 0 of one whose size the first batch decides."""
    return [
        getattr(parameter, "nbytes", 0)
        for parameter in parameters
        if not hasattr(parameter, "materialize")
    ]


def _arguments(plan: Plan, classes: int) -> dict[str, Any]:
    """Return keyword arguments for building a net of this package that fits the plan."""
    images = plan.batches[0][0]
    if not (hasattr(images, "ndim") and images.ndim == 4):
        raise ValueError(
            "model: the net takes images [n, C, H, W]; for other inputs, give --net and --reference"
        )
    shape = {"num_classes": classes, "in_channels": images.shape[1], "image_size": images.shape[2]}
    return {**shape, "stem": plan.net.stem, "norm": plan.net.norm}
