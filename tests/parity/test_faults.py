"""Faults that ports have, each planted in a tiny port of a tiny net: the first stage, layer and
cause are named.
"""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.pair.name_map import MadeOf, Part
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.update.adaptive import adam
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.state import Optimizer, make_buffers
from small_nets import (
    PADDED,
    SGD,
    DropPath,
    Ours,
    PortedPath,
    Theirs,
    cell,
    ladder_of,
    layer_norm,
    module,
    ones,
    ours,
    recording_of,
    t,
    theirs,
    torch,
)

pytestmark = pytest.mark.usefixtures("device")

RNG = np.random.default_rng(0)
VECTORS, IMAGE, TOKENS = (
    RNG.normal(size=shape).astype(np.float32) for shape in ((6, 8), (4, 4, 5, 4), (4, 5, 8))
)
IDS = RNG.integers(1, 9, (4, 5)).astype(np.int32)
IDS[:2, 3:] = 0
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [1, 0, 1, 1, 1]], bool)


def linear(*more):
    return Theirs(t.Linear(8, 8), *more)


def dense(*more):
    """Its right port, without what follows."""
    return Ours(nn.Dense(8, 8), *more)


def attention():
    def forward(self, x, mask):
        return self.head(self.attn(x, x, x, key_padding_mask=~mask)[0].mean(1))

    net = theirs(forward, attn=t.MultiheadAttention(8, 2, batch_first=True))
    t.init.normal_(net.attn.in_proj_weight)
    t.init.normal_(net.attn.in_proj_bias)
    return net


def ported_attention(scale=0.5, axis=-1, hides=False):
    """A port whose faults are its arguments."""

    def construct(self, x, mask):
        q, k, v = (
            part(x).reshape(4, 5, 2, 4).transpose(0, 2, 1, 3) for part in (self.q, self.k, self.v)
        )
        hidden = mask if hides else ops.logical_not(mask)
        scores = (ops.matmul(q, k.swapaxes(2, 3)) * scale).masked_fill(
            hidden.reshape(4, 1, 1, 5), -1e9
        )
        mixed = ops.matmul(ops.softmax(scores, axis), v)
        return self.head(self.out_proj(mixed.transpose(0, 2, 1, 3).reshape(4, 5, 8)).mean(1))

    return ours(construct, **{name: nn.Dense(8, 8) for name in ("q", "k", "v", "out_proj")})


def encoded(cat, fault=""):
    """A class token, positions, a residual block, attention by hand, an LSTM's state, a flattened
    layer; perhaps with the fault of that name.
    """

    def forward(self, x):
        x = cat([self.token.tile((4, 1, 1)), x], 1)
        x = x if fault == "positions" else x + self.positions
        h, heads = self.norm(x), 4 if fault == "heads" else 2
        x = (0.0 if fault == "skip" else h if fault == "residual" else x) + self.fc(h)
        parts = self.q(x), self.k(x), self.v(x)
        q, k, v = (part.reshape(4, 6, heads, 8 // heads).swapaxes(1, 2) for part in parts)
        q, k = (k, q) if fault == "swapped" else (q, k)
        mixed = (q @ k.swapaxes(2, 3) / (8 // heads) ** 0.5).softmax(-1) @ v
        x = self.last(x + self.out(mixed.swapaxes(1, 2).reshape(4, 6, 8)))
        small, (_, (h, c)) = self.small(x), self.lstm(x)
        small = small.swapaxes(1, 2) if fault == "order" else small
        of_state = self.state(c[-1] if fault == "cell" else h[-1])
        first = x.mean(1) if fault == "token" else x[:, 0]
        return self.head(first), self.flat(small.reshape(4, 18)) + of_state

    return forward


def encoder():
    return theirs(
        encoded(torch.cat),
        **{name: t.Linear(8, 8) for name in ("fc", "q", "k", "v", "out")},
        norm=t.LayerNorm(8),
        last=t.LayerNorm(8),
        lstm=t.LSTM(8, 4, 2, batch_first=True),
        token=t.Parameter(torch.randn(1, 1, 8)),
        positions=t.Parameter(torch.randn(1, 6, 8)),
        small=t.Linear(8, 3),
        flat=t.Linear(18, 3),
        state=t.Linear(4, 3),
    )


def ported_encoder(fault=""):
    return ours(
        encoded(ops.cat, fault),
        **{name: nn.Dense(8, 8) for name in ("fc", "q", "k", "v", "out")},
        norm=layer_norm(),
        last=layer_norm(),
        lstm=nn.LSTM(8, 4, 2, batch_first=True),
        token=ones(1, 1, 8),
        positions=ones(1, 6, 8),
        small=nn.Dense(8, 3),
        flat=nn.Dense(18, 3),
        state=nn.Dense(4, 3),
    )


def both(function, second=0.5):
    """The loss of two outputs."""
    return lambda outputs, labels: (
        function(outputs[0], labels) + second * function(outputs[1], labels)
    )


def by_hand(width):
    """A dense layer as JAX or Keras write it: its weight is [in, out]."""
    return cell(
        lambda self, x: ops.matmul(x, self.weight) + self.bias,
        weight=ones(8, width),
        bias=ones(width),
    )


def words(tied):
    """Token ids; with `tied` the output layer shares the embedding's weight."""
    layers = {"embed": t.Embedding(9, 8, padding_idx=0), "head": t.Linear(8, 9, bias=False)}
    net = module(lambda n, ids: n.head(n.embed(ids).mean(1)), **layers)
    if tied:
        net.head.weight = net.embed.weight
    return net


def ported_words(padding):
    """MindSpore's padding row starts at zero, and trains without `padding`; a second weight is a
    copy.
    """

    def construct(self, ids):
        x = self.embed(ids)
        return self.head((x * (ids != 0).expand_dims(-1) if padding else x).mean(1))

    return cell(
        construct, embed=nn.Embedding(9, 8, padding_idx=0), head=nn.Dense(8, 9, has_bias=False)
    )


def masked(hidden):
    """The last class is hidden."""
    return lambda net, x: net.head(net.part(x).mean(1)).masked_fill(hidden, -np.inf)


def unmasked(logits, labels):
    return (logits[:, :2] ** 2).mean()


HALF = np.random.default_rng(1).normal(size=(4, 3, 6, 6)).astype(np.float32)


def two_convolutions():
    first, second = (t.Conv2d(width, 8, 3, padding=1, bias=False) for width in (3, 8))
    return Theirs(first, t.BatchNorm2d(8), t.ReLU(), second, t.BatchNorm2d(8), t.ReLU())


def in_float16(*more):
    first, second = (nn.Conv2d(width, 8, 3, **PADDED) for width in (3, 8))
    norms = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
    middle = nn.SequentialCell(nn.ReLU(), *more)
    net = Ours(first, norms[0], middle, second, norms[1], nn.ReLU())
    for layer in (first, second, net.head):
        layer.to_float(mindspore.float16)
    for norm in norms:
        norm.to_float(mindspore.float32)
    return net


def scaled():
    """Inputs minus the mean that the net was trained with."""
    return module(lambda self, x: x - self.mean, mean=t.Buffer(torch.linspace(0, 1, 8)))


def scaled_port():
    """Another mean, as a parameter that is not trained."""
    mean = Parameter(Tensor(np.linspace(0, 2, 8, dtype=np.float32)), requires_grad=False)
    return cell(lambda self, x: x - self.mean, mean=mean)


def zero_head(net):
    t.init.zeros_(net.head.weight)
    return net


def frozen(layer):
    for parameter in layer.get_parameters():
        parameter.requires_grad = False
    return layer


def own(kind, **settings):
    """The package's SGD or Adam, as an optimizer of one's own."""
    return lambda net: kind([(parameter, 0.0) for parameter in net.trainable_params()], **settings)


def inside_the_root(net, epsilon=1e-3):
    """Adam, and eps where it should not be."""
    weights = tuple(net.trainable_params())
    momenta, variances = make_buffers(weights, "momentum"), make_buffers(weights, "variance")
    count = Parameter(Tensor(0.0), name="count", requires_grad=False)

    def update(gradients, learning_rate):
        ops.assign(count, count + 1.0)
        for weight, m, v, gradient in zip(weights, momenta, variances, gradients, strict=True):
            ops.assign(m, 0.9 * m + 0.1 * gradient)
            ops.assign(v, 0.999 * v + 0.001 * gradient * gradient)
            root = ops.sqrt(v / (1 - 0.999**count) + epsilon)
            ops.assign(weight, weight - learning_rate * m / (1 - 0.9**count) / root)

    return Optimizer((*momenta, *variances, count), update)


def log_of_softmax(logits, labels):
    """Right until the softmax is 0."""
    return -(ops.log(ops.softmax(logits, -1)) * nn.OneHot(depth=3)(labels)).sum(-1).mean()


@dataclasses.dataclass(frozen=True)
class Fault:
    """Both nets of a row."""

    inputs: Any
    reference: Callable[[], Any]  # makes a module or a recording
    port: Callable[[], nn.Cell]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Callable[[nn.Cell], Any] | None = None
    recipe: Any = SGD


def batches_of(inputs):
    rows = len(inputs["x"] if isinstance(inputs, dict) else inputs)
    return [(inputs, (np.arange(rows) % 3).astype(np.int32))] * 2


@cache
def recorded_encoder():
    """The reference of all ports of the encoder."""
    loss = both(lambda outputs, labels: t.functional.cross_entropy(outputs, labels.long()))
    return recording_of(encoder(), batches_of(TOKENS), loss, probes=True)


o = torch.optim
MOMENTUM = partial(o.SGD, lr=0.05, momentum=0.9)
TWO_LOSSES = {"loss": both(ops.cross_entropy)}
IN_ENCODER = """
a skip connection left out | skip | q | the first term left out in the port
a residual from after the norm | residual | q | (norm) as argument 1 of add in the port
positions left out | positions | norm | the second term left out in the port
mean for class token | token | head | mean over axis 1 for [0] in the port
other heads | heads | out | reshaped to [4, 6, 4, 2] for [4, 6, 2, 4] (and 2 more calls), then
q and k swapped | swapped | out | the product transposed in the port
an LSTM's c for its h | cell | state | (lstm): the cell state for the hidden state in the port
flattened wrongly | order | flat | axes 1 and 2 exchanged before it is reshaped in the port
"""


def optimizers(theirs, ours):
    """One net, trained by two optimizers: of torch and of MindSpore, functions of the parameters or
    of the net.
    """
    options = {"reference_optimizer": lambda module: theirs(module.parameters())}
    return Fault(VECTORS, linear, dense, options, ours)


def mindspores(kind, *settings, **named):
    return lambda net: kind(net.trainable_params(), *settings, **named)


# The keys are the rows of the table in docs/parity.md: fault, first stage, first layer, cause.
FAULTS = {
    "GELU by tanh instead of exact | eval forward | `part.1` | (part.1): tanh GELU for gelu in the port": Fault(
        VECTORS, lambda: linear(t.GELU()), lambda: dense(nn.GELU())
    ),
    "GELU before a last layer of zeros | eval forward | `part.1` | (part.1): tanh GELU for gelu "
    "in the port": Fault(
        VECTORS,
        lambda: zero_head(linear(t.GELU())),
        lambda: dense(nn.GELU()),
    ),
    "LayerNorm's eps | eval forward | `part` | eps 1e-05 in the port, 0.01 in the reference": Fault(
        TOKENS,
        lambda: Theirs(t.LayerNorm(8, eps=1e-2)),
        lambda: Ours(layer_norm()),
    ),
    "LayerNorm's eps, before logits of which some are −inf | eval forward | `part` | eps 1e-05 "
    "in the port, 0.01 in the "
    "reference": Fault(
        TOKENS,
        lambda: theirs(masked(torch.arange(3) > 1), t.LayerNorm(8, eps=1e-2)),
        lambda: ours(masked(ops.arange(3) > 1), layer_norm()),
        options={"loss": unmasked, "reference_loss": unmasked},
    ),
    # The channels are last for a norm over them; there are as many columns.
    "LayerNorm over the wrong axis | eval forward | `part.norm` | (part.norm): normalized and "
    "weighted over axis 2 "
    "for 3 in the port": Fault(
        IMAGE,
        lambda: Theirs(
            module(lambda n, x: n.norm(x.movedim(1, 3)).movedim(3, 1), norm=t.LayerNorm(4)), width=4
        ),
        lambda: Ours(cell(lambda n, x: n.norm(x), norm=layer_norm(4)), width=4),
    ),
    "attention scaled by 1/d | eval forward | `out_proj` | (attn): multiplied by "
    "0.5^2 for multiplied by 0.5 in the port": Fault(
        {"x": TOKENS, "mask": MASK}, attention, lambda: ported_attention(scale=0.25)
    ),
    "attention's mask of the wrong sign | eval forward | `out_proj` | (attn): the mask inverted "
    "in the port": Fault(
        {"x": TOKENS, "mask": MASK}, attention, lambda: ported_attention(hides=True)
    ),
    "attention's softmax over the wrong axis | eval forward | `out_proj` | (attn): "
    "softmax over axis 1 for 2 in the port": Fault(
        {"x": TOKENS, "mask": np.ones((4, 5), bool)}, attention, lambda: ported_attention(axis=-2)
    ),
    "softmax over the wrong axis | eval forward | `part` | axis 1 in the port, 2 in the reference": Fault(
        TOKENS, lambda: Theirs(t.Softmax(-1)), lambda: Ours(nn.Softmax(1))
    ),
    "a square Dense weight transposed | eval forward | `part` | (part): the weight transposed in the port": Fault(
        VECTORS, linear, lambda: Ours(by_hand(8))
    ),
    "a weight reshaped where it is transposed (--map) | eval forward | `part` | (part): the weight "
    "reshaped "
    "instead of transposed in the port": Fault(
        VECTORS,
        lambda: Theirs(t.Linear(8, 4), width=4),
        lambda: Ours(by_hand(4), width=4),
        options={"corrections": {"part.weight": MadeOf((Part("part.weight"),), shape=(8, 4))}},
    ),
    **{
        f"{name} | eval forward | `{layer}` | {cause}": Fault(
            TOKENS, recorded_encoder, partial(ported_encoder, fault), TWO_LOSSES
        )
        for name, fault, layer, cause in (
            row.split(" | ") for row in IN_ENCODER.strip().split("\n")
        )
    },
    "one loss of two | loss |  | the second term left out in the port": Fault(
        TOKENS,
        recorded_encoder,
        ported_encoder,
        options={"loss": both(ops.cross_entropy, 0.0)},
    ),
    "an embedding's padding row trains | gradients |  | (embed): its padding row 0 trained in the port": Fault(
        IDS, lambda: words(tied=False), lambda: ported_words(padding=False)
    ),
    "tied weights are two copies | gradients |  | embed.embedding_table: a copy of head.weight "
    "in the port, one array "
    "in the reference (embed.weight = head.weight); share it": Fault(
        IDS, lambda: words(tied=True), lambda: ported_words(padding=True)
    ),
    "average pool counts its padding | eval forward | `part` | count_include_pad True in the port, False "
    "in the "
    "reference": Fault(
        IMAGE,
        lambda: Theirs(t.AvgPool2d(3, 2, 1, count_include_pad=False), width=4),
        lambda: Ours(nn.AvgPool2d(3, 2, count_include_pad=True, **PADDED), width=4),
    ),
    "interpolation with other corners | eval forward | `part` | align_corners True in the port, False in "
    "the reference": Fault(
        IMAGE,
        lambda: Theirs(t.Upsample(size=(7, 7), mode="bilinear", align_corners=False), width=4),
        lambda: Ours(nn.Upsample(size=(7, 7), mode="bilinear", align_corners=True), width=4),
    ),
    "a depthwise convolution with wrong groups | weights |  | groups 2 in the port, 4 in the reference": Fault(
        IMAGE,
        lambda: Theirs(t.Conv2d(4, 4, 3, padding=1, groups=4), width=4),
        lambda: Ours(nn.Conv2d(4, 4, 3, group=2, has_bias=True, **PADDED), width=4),
    ),
    "a transposed convolution without its output padding | eval forward | `part` | pad_mode pad "
    "cuts off 1/1, "
    "the reference 1/0": Fault(
        IMAGE,
        lambda: Theirs(t.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1), width=4),
        lambda: Ours(nn.Conv2dTranspose(4, 4, 3, 2, has_bias=True, **PADDED), width=4),
    ),
    "a frozen layer that trains | trained arrays |  | part.weight: trained in the port, frozen in the "
    "reference": Fault(VECTORS, lambda: Theirs(t.Linear(8, 8).requires_grad_(False)), dense),
    "a trained layer that is frozen | trained arrays |  | part.weight: frozen in the port, trained in the "
    "reference": Fault(VECTORS, linear, lambda: Ours(frozen(nn.Dense(8, 8)))),
    "dropout left on in evaluation | eval forward | `part.1` | the net gives another output each "
    "time it is "
    "called in evaluation mode: dropout is left on": Fault(
        VECTORS,
        lambda: linear(t.Dropout(0.5)),
        lambda: dense(cell(lambda self, x: ops.dropout(x, 0.5, True))),
    ),
    "dropout's keep_prob taken for p | dropout | `head` | p=0.8 in the port, 0.2 in the reference: "
    "nn.Dropout(0.2) keeps "
    "0.2 in MindSpore; write nn.Dropout(p=0.2)": Fault(
        VECTORS,
        lambda: linear(t.Dropout(0.2)),
        lambda: dense(nn.Dropout(0.2)),
    ),
    "a dropout left out | dropout |  | part.1: p=0 in the port, 0.2 in the reference": Fault(
        VECTORS,
        lambda: linear(t.Dropout(0.2)),
        lambda: Ours(nn.SequentialCell(nn.Dense(8, 8))),
    ),
    "a loss that is a sum | loss |  | the reference: sum for mean, a factor of": Fault(
        VECTORS, linear, dense, options={"loss": partial(ops.cross_entropy, reduction="sum")}
    ),
    "another mean, which is not trained | untrained arrays |  | part.mean: 2 in the port, 1 in the "
    "reference at [7]": Fault(VECTORS, lambda: Theirs(scaled()), lambda: Ours(scaled_port())),
    "moving statistics that begin elsewhere | untrained arrays |  | part.moving_variance: 0 in the port, "
    "1 in the "
    "reference at [0]": Fault(
        VECTORS,
        lambda: Theirs(t.BatchNorm1d(8)),
        lambda: Ours(nn.BatchNorm1d(8, moving_var_init="zeros")),
        options={"initialisation": True},
    ),
    "weight decay that leaves out gamma and beta (nn.SGD, one list) | optimizer settings |  | "
    "weight decay: 0 "
    "in the port, 0.1 in the reference (2 parameters, first part.gamma)": Fault(
        VECTORS,
        lambda: Theirs(t.LayerNorm(8)),
        lambda: Ours(layer_norm()),
        options={
            "reference_optimizer": lambda module: torch.optim.SGD(
                module.parameters(), 0.05, weight_decay=0.1
            )
        },
        optimizer=lambda net: nn.SGD(net.trainable_params(), 0.05, weight_decay=0.1),
    ),
    "AdamW's weight decay coupled | optimizer alone |  | weight decay: coupled (added to the "
    "gradient, as Adam) "
    "in the port, decoupled (taken from the weight, as AdamW) in the reference": optimizers(
        partial(o.AdamW, lr=0.01, weight_decay=0.1), mindspores(nn.Adam, 0.01, weight_decay=0.1)
    ),
    "Adam without bias correction (nn.AdamWeightDecay) | optimizer alone |  | Adam's bias "
    "correction: "
    "missing in the port, m and v are divided by 1 − β^t in the reference": optimizers(
        partial(o.Adam, lr=0.01), mindspores(nn.AdamWeightDecay, 0.01, eps=1e-8)
    ),
    "Adam's eps inside the root | optimizer alone |  | eps: inside the root, √(v̂ + eps) in the port, "
    "added to "
    "the root √v̂ in the reference": optimizers(partial(o.Adam, lr=0.01, eps=1e-3), inside_the_root),
    "Adam's eps before the bias correction (nn.Adam) | optimizer alone |  | eps: added to √v "
    "before its "
    "bias correction in the port, added to the root √v̂ in the reference": optimizers(
        partial(o.Adam, lr=0.01, eps=1e-3), mindspores(nn.Adam, 0.01, eps=1e-3)
    ),
    "Nesterov momentum left out (nn.Momentum on a CPU) | optimizer alone |  | Nesterov momentum: "
    "False "
    "in the port, True in the reference": optimizers(
        partial(o.SGD, lr=0.02, momentum=0.9, nesterov=True),
        mindspores(nn.Momentum, 0.02, 0.9, use_nesterov=True),
    ),
    "Adam's betas swapped | optimizer alone |  | betas swapped: β1, β2: 0.999, 0.9 in the port, 0.9, "
    "0.999 "
    "in the reference": optimizers(partial(o.Adam, lr=0.01), own(adam, beta1=0.999, beta2=0.9)),
    "Adam's β1 with momentum's other meaning | optimizer alone |  | betas (β is the weight of the "
    "old state, "
    "not of the new): 0.1, 0.999 in the port, 0.9, 0.999 in the reference": optimizers(
        partial(o.Adam, lr=0.01), own(adam, beta1=0.1, beta2=0.999)
    ),
    "30 % of a layer's gradient missing in half precision | gradients |  | ": Fault(
        HALF,
        two_convolutions,
        lambda: in_float16(cell(lambda self, x: x * 0.7 + ops.stop_gradient(x * 0.3))),
        recipe=SGD.changed(precision="fp16"),
    ),
    "a tenth of the learning rate | optimizer settings |  | learning rate: 0.005 in the port, 0.05 in the "
    "reference (4 "
    "parameters, first part.weight)": optimizers(MOMENTUM, mindspores(nn.Momentum, 0.005, 0.9)),
    "momentum 0.99 for 0.9 | optimizer settings |  | momentum: 0.99 in the port, 0.9 in the reference (4 "
    "parameters, "
    "first part.weight)": optimizers(MOMENTUM, mindspores(nn.Momentum, 0.05, 0.99)),
    "momentum 0.5 for 0.9 in an optimizer of one's own | optimizer alone |  | momentum: 0.5 in the port, "
    "0.9 in "
    "the reference": optimizers(MOMENTUM, own(momentum_sgd, momentum=0.5)),
    "Adam's eps 1e-5 for 1e-8 in an optimizer of one's own | optimizer alone |  | eps: 1e-05 in the port, "
    "1e-08 in the "
    "reference": optimizers(partial(o.Adam, lr=0.01), own(adam, epsilon=1e-5)),
    "amsgrad left out | optimizer settings |  | amsgrad: 0 in the port, 1 in the reference": optimizers(
        partial(o.Adam, lr=0.01, amsgrad=True), mindspores(nn.Adam, 0.01)
    ),
    "a parameter that the optimizer is not given | optimizer settings |  | updated by the "
    "optimizer in the reference "
    "only (1 parameters, first part.weight)": optimizers(
        MOMENTUM, lambda net: nn.Momentum(net.trainable_params()[1:], 0.05, 0.9)
    ),
    "a loss that is the logarithm of a softmax | loss alone |  | ": Fault(
        8 * VECTORS, linear, dense, options={"loss": log_of_softmax}
    ),
    "a bias of zeros that is not added | eval forward | `part` | (part): the second term left out "
    "in the port": Fault(
        VECTORS,
        lambda: Theirs(module(lambda self, x: x + self.bias, bias=t.Parameter(torch.zeros(8)))),
        lambda: Ours(cell(lambda self, x: x, bias=Parameter(Tensor(np.zeros(8, np.float32))))),
    ),
    "dampening | optimizer settings |  | dampening: 0.5 in the port, 0 in the reference (4 parameters, "
    "first "
    "part.weight)": optimizers(MOMENTUM, mindspores(nn.SGD, 0.05, 0.9, 0.5)),
    "RMSProp's mean square begins at 1 (nn.RMSProp) | optimizer alone |  | the first mean square: "
    "1 in the port, 0 in the reference": optimizers(
        partial(o.RMSprop, lr=0.01, alpha=0.9, eps=1e-2),
        mindspores(nn.RMSProp, 0.01, 0.9, epsilon=1e-2),
    ),
    "centred RMSProp's eps inside the root (nn.RMSProp) | optimizer alone |  | eps: inside the "
    "root, √(v̂ + eps), whose first mean square is 1, in the port, added to the root √v̂ in the reference": optimizers(
        partial(o.RMSprop, lr=0.01, alpha=0.9, eps=1e-2, centered=True),
        mindspores(nn.RMSProp, 0.01, 0.9, epsilon=1e-2, centered=True),
    ),
    "another share of dropout | dropout | `head` | p=0.5 in the port, 0.2 in the reference": Fault(
        VECTORS,
        lambda: linear(t.Dropout(0.2)),
        lambda: dense(nn.Dropout(p=0.5)),
    ),
    "dropout of elements for channels | dropout | `head` | drops elements (a mask [4, 4, 5, 4]) "
    "in the port, channels (a "
    "mask [4, 4, 1, 1]) in the reference": Fault(
        IMAGE,
        lambda: Theirs(t.Conv2d(4, 4, 1), t.Dropout2d(0.3), width=4),
        lambda: Ours(nn.Conv2d(4, 4, 1, has_bias=True), nn.Dropout(p=0.3), width=4),
    ),
    "dropout of channels for samples | dropout | `head` | drops channels (a mask [4, 4, 1, 1]) "
    "in the port, samples (a mask "
    "[4, 1, 1, 1]) in the reference": Fault(
        IMAGE,
        lambda: Theirs(t.Conv2d(4, 4, 1), DropPath(), width=4),
        lambda: Ours(nn.Conv2d(4, 4, 1, has_bias=True), nn.Dropout2d(0.4), width=4),
    ),
    "drop-path without its factor | dropout | `head` | multiplies what it keeps by 1 in the port, 1.66667 "
    "in the "
    "reference": Fault(
        TOKENS,
        lambda: linear(DropPath()),
        lambda: dense(PortedPath(0.4, scales=False)),
    ),
    "dropout before the activation | train forward, with dropout | `head` | ": Fault(
        VECTORS,
        lambda: linear(t.Sigmoid(), t.Dropout(0.3)),
        lambda: dense(nn.Dropout(p=0.3), nn.Sigmoid()),
    ),
    "dropout after the norm | train forward, with dropout | `part.1` | ": Fault(
        VECTORS,
        lambda: linear(t.Dropout(0.3), t.LayerNorm(8)),
        lambda: dense(layer_norm(), nn.Dropout(p=0.3)),
    ),
    "dropout after another layer | train forward, with dropout | `part.1` | ": Fault(
        VECTORS,
        lambda: linear(t.Dropout(0.3), t.Linear(8, 8), t.Tanh()),
        lambda: dense(nn.Dense(8, 8), nn.Dropout(p=0.3), nn.Tanh()),
    ),
    "dropout of a residual's other branch | train forward, with dropout | `head` | ": Fault(
        VECTORS,
        lambda: Theirs(
            module(lambda n, x: x + n.drop(n.fc(x)), fc=t.Linear(8, 8), drop=t.Dropout(0.3))
        ),
        lambda: Ours(
            cell(
                lambda n, x: n.dropout(x) + n.dense(x),
                dense=nn.Dense(8, 8),
                dropout=nn.Dropout(p=0.3),
            )
        ),
    ),
}
# stages at which causes are searched for
SEARCHED = ("eval forward", "train forward", "loss", "gradients")
ROWS = {row.split(" | ")[0]: row for row in FAULTS}


def climbed(fault, **options):
    module, net = fault.reference(), fault.port()
    options |= {"optimizer": fault.optimizer(net) if fault.optimizer else None} | fault.options
    return ladder_of(net, module, batches_of(fault.inputs), fault.recipe, **options)


@pytest.mark.parametrize("name", ROWS)
def test_stage_layer_and_cause_are_named(name):
    _, stage, layer, cause = ROWS[name].split(" | ")
    ladder = climbed(FAULTS[ROWS[name]], quick=stage not in SEARCHED)
    assert ladder.first_stage is not None, table(ladder)
    assert title_of_stage(ladder.first_stage) == stage, table(ladder)
    first = ladder.first_layer
    assert (first.name if first else "") == layer.strip("`"), table(ladder)
    hints = [*ladder.first_stage.hints, *(first.hints if first else ())]
    assert not cause or any(cause in hint for hint in hints), (hints, table(ladder))


def test_half_precision_without_a_fault_agrees():
    fault = FAULTS[ROWS["30 % of a layer's gradient missing in half precision"]]
    ladder = climbed(dataclasses.replace(fault, port=in_float16))
    assert ladder.agrees, table(ladder)


def test_an_encoder_without_a_fault_agrees():
    """Compiled, with probes."""
    fault = Fault(TOKENS, recorded_encoder, ported_encoder, TWO_LOSSES)
    ladder = climbed(fault, mode="graph", quick=False)
    assert ladder.agrees, table(ladder)
    assert not ladder.probed.findings, ladder.probed.lines()


def test_the_table_in_the_docs_is_this_one(table_in_docs):
    head = ["| fault | first stage | first layer | cause, as it is named |", "|---|---|---|---|"]
    assert table_in_docs(__file__, "faults") == [*head, *(f"| {row} |" for row in FAULTS)]
