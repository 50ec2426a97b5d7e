"""Parameter groups: their factors, and ten updates of each kind beside torch's own optimizer."""

import dataclasses

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models import build_net
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import columns, make_optimizer, parameter_groups, weight_decay_groups
from resnet_fn.update.step import make_train_step
from resnet_fn.weights.names import to_ours

pytestmark = pytest.mark.usefixtures("device")

CLASSES = 4
SPEC = InputSpec(
    name="random", classes=tuple("abcd"), channels=1, image_size=8, full_scale=1.0, mean=(0.0,), std=(1.0,)
)
RECIPE = Recipe(model="resnet8", image_size=8, learning_rate=0.05, weight_decay=0.01)


def factors(recipe):
    net = build_net(recipe, SPEC)
    return {parameter.name: factor for parameter, _, factor in parameter_groups(recipe, net)}


def test_layer_decay_is_timms():
    """layer_scales = decay ** (layers - 1 - layer): the stem is layer 0, each block one, the head the last."""
    found = factors(dataclasses.replace(RECIPE, model="resnet20", layer_decay=0.5))
    assert found["fc.weight"] == found["fc.bias"] == 1
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in (0, 1, 2)]
    for distance, block in enumerate(reversed(blocks), 1):
        assert {value for name, value in found.items() if name.startswith(block)} == {0.5**distance}
    assert found["conv1.weight"] == found["bn1.beta"] == 0.5**10


def test_the_heads_rate_and_frozen_parts():
    recipe = dataclasses.replace(RECIPE, head_learning_rate=0.5, layer_decay=0.5, freeze="stem,layer1")
    found = factors(recipe)
    assert {name.split(".")[0]: value for name, value in found.items()} == {"layer2": 0.25, "layer3": 0.5, "fc": 10}


def test_a_row_without_a_factor_has_the_plain_rate():
    net = build_net(RECIPE, SPEC)
    pairs = weight_decay_groups(net, 0.1)
    assert columns(pairs).factors == (1.0,) * len(pairs)
    assert columns(pairs)[:2] == tuple(zip(*pairs, strict=True))
    assert factors(RECIPE) == {parameter.name: 1.0 for parameter, _ in pairs}
    assert columns([]) == ((), (), ())


KINDS = {
    "frozen": {"freeze": "stem,layer1"},
    "only the head": {"train_only": "fc"},
    "head rate": {"head_learning_rate": 0.2},
    "layer decay": {"layer_decay": 0.75, "nesterov": False},
    "class weights": {"class_weights": "balanced"},
    "AdamW": {"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-4, "layer_decay": 0.75, "freeze": "stem"},
}


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
def test_ten_updates_are_torchs(fields):
    """Gradients' norm of the first update, then weights and statistics after ten, against torch in float64."""
    torch = pytest.importorskip("torch")
    from resnet_fn.reference.nets import reference_net

    recipe = dataclasses.replace(RECIPE, **fields)
    net = build_net(recipe, SPEC)
    torch.manual_seed(0)
    reference = reference_net("resnet8", num_classes=CLASSES, in_channels=1, stem="", norm="batch", image_size=8)
    theirs = {new: old for old, new in to_ours(_arrays(reference), "torchvision").items()}
    for parameter in net.get_parameters():
        mindspore.ops.assign(parameter, Tensor(_arrays(reference)[theirs[parameter.name]]))
    rows = parameter_groups(recipe, net)
    own = dict(reference.double().named_parameters())
    for name, parameter in own.items():
        parameter.requires_grad = name in {theirs[p.name] for p, _, _ in rows}
    groups = [{"params": [own[theirs[p.name]]], "weight_decay": decay, "factor": factor} for p, decay, factor in rows]
    optimizer = (
        torch.optim.AdamW(groups)
        if recipe.optimizer == "adamw"
        else torch.optim.SGD(groups, momentum=recipe.momentum, nesterov=recipe.nesterov)
    )
    weights = (0.5, 2.0, 1.0, 1.5) if recipe.class_weights else ()
    step = make_train_step(net, make_loss(0.1, weights=weights), make_optimizer(recipe, net), clip_norm=1.0)
    rng = np.random.default_rng(0)
    for update in range(10):
        images = rng.normal(size=(16, 1, 8, 8)).astype(np.float32)
        labels = rng.integers(0, CLASSES, 16).astype(np.int32)
        rate = recipe.learning_rate * (1 - update / 10)
        result = step(Tensor(images), Tensor(labels), rate)
        reference.train()
        for module in reference.modules():  # torch's way to freeze a BatchNorm
            if isinstance(module, torch.nn.BatchNorm2d) and not module.weight.requires_grad:
                module.eval()
        optimizer.zero_grad()
        logits = reference(torch.from_numpy(images).double())
        of_class = torch.tensor(weights).double() if weights else None
        targets = torch.from_numpy(labels).long()
        each = torch.nn.functional.cross_entropy(logits, targets, of_class, label_smoothing=0.1, reduction="none")
        loss = each.mean()
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_([p for p in own.values() if p.requires_grad], 1.0))
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        optimizer.step()
        assert float(result.loss.asnumpy()) == pytest.approx(float(loss.detach()), rel=1e-4), update
        assert float(result.grad_norm.asnumpy()) == pytest.approx(norm, rel=1e-5 if update == 0 else 1e-3), update
    expected = _arrays(reference)
    for parameter in net.get_parameters():
        value = expected[theirs[parameter.name]]
        assert np.linalg.norm(parameter.asnumpy() - value) <= 1e-4 * np.linalg.norm(value), parameter.name


def _arrays(module):
    return {name: value.detach().numpy() for name, value in module.state_dict().items() if value.ndim}


ADAMW = {"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-3, "epsilon": 1e-4}  # at 1e-8 rounding decides
LADDER = {
    "frozen": {"freeze": "stem,layer1"},
    "layer decay and head rate": {"layer_decay": 0.75, "head_learning_rate": 0.02},
    "AdamW": {**ADAMW, "layer_decay": 0.75, "freeze": "stem"},
}


@pytest.mark.slow
@pytest.mark.parametrize("fields", LADDER.values(), ids=LADDER)
def test_the_ladder_agrees_for_ten_updates(fields):
    """Every gradient, momentum and weight, through the parity ladder: net, loss and optimizer come from the recipe."""
    torch = pytest.importorskip("torch")
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.parity.trace import make_batches
    from resnet_fn.reference.nets import reference_net

    class FrozenNorm(torch.nn.BatchNorm2d):
        def train(self, mode=True):
            return super().train(False)

    recipe = dataclasses.replace(RECIPE, **fields, class_weights="balanced")
    net = build_net(recipe, SPEC)
    weights = (0.5, 2.0, 1.0, 1.5)
    reference = reference_net("resnet8", num_classes=CLASSES, in_channels=1, stem="", norm="batch", image_size=8)
    theirs = {new: old for old, new in to_ours(_arrays(reference), "torchvision").items()}
    rows = {theirs[p.name]: (decay, factor) for p, decay, factor in parameter_groups(recipe, net)}
    for name, parameter in reference.named_parameters():
        parameter.requires_grad = name in rows
    for module in reference.modules():
        if isinstance(module, torch.nn.BatchNorm2d) and not module.weight.requires_grad:
            module.__class__ = FrozenNorm

    def optimizer(module):
        groups = [
            {"params": [parameter], "weight_decay": rows[name][0], "lr": rows[name][1]}
            for name, parameter in module.named_parameters()
            if name in rows
        ]
        groups.append({"params": [torch.nn.Parameter(torch.zeros(1))], "weight_decay": 0.0, "lr": 1.0})  # the full rate
        if recipe.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=1.0, eps=recipe.epsilon)
        return torch.optim.SGD(groups, lr=1.0, momentum=recipe.momentum, nesterov=recipe.nesterov)

    def loss(logits, labels):
        weight = torch.tensor(weights, dtype=logits.dtype)
        losses = torch.nn.functional.cross_entropy(logits, labels.long(), weight, label_smoothing=0.1, reduction="none")
        return losses.mean()

    ladder = compare_step(
        net,
        reference,
        make_batches(10, 16, 1, 8, CLASSES, 0),
        dataclasses.replace(RECIPE, learning_rate=recipe.learning_rate),  # the rest is in the functions
        loss=make_loss(0.1, weights=weights),
        optimizer=make_optimizer(recipe, net),
        reference_loss=loss,
        reference_optimizer=optimizer,
        initialisation=False,
    )
    assert ladder.agrees, "\n".join(f"{stage.name}: {stage.first or stage.failed}" for stage in ladder.stages)
