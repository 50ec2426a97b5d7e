"""Right ports of convolutions, norms and blocks agree."""

import pytest
from mindspore import nn, ops

from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import (
    ADAMW,
    SGD,
    Other,
    Ours,
    Pair,
    Theirs,
    cell,
    draw,
    images,
    labels,
    ladder_of,
    module,
    ones,
    ours,
    stage_of,
    t,
    theirs,
    torch,
    vector,
)

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")


CLIPPED = SGD.changed(clip_norm=0.5)


def convnext(self, x):
    out = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
    return x + (self.gamma * self.pwconv2(self.act(self.pwconv1(out)))).permute(0, 3, 1, 2)


def convnext_block():
    return module(
        convnext,
        dwconv=t.Conv2d(8, 8, 7, padding=3, groups=8),
        norm=t.LayerNorm(8, eps=1e-6),
        pwconv1=t.Linear(8, 32),
        act=t.GELU(),
        pwconv2=t.Linear(32, 8),
        gamma=t.Parameter(torch.full((8,), 0.5)),
    )


def ported_convnext(self, x):
    out = self.ln(self.depth(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return x + self.scale.reshape(1, -1, 1, 1) * self.narrow(self.gelu(self.wide(out)))


def ported_convnext_block() -> nn.Cell:
    """Dense layers as convolutions of one pixel, channels last inside the norm only."""
    return cell(
        ported_convnext,
        depth=nn.Conv2d(8, 8, 7, group=8, has_bias=True),
        ln=nn.LayerNorm((8,), epsilon=1e-6),
        wide=nn.Conv2d(8, 32, 1, has_bias=True),
        narrow=nn.Conv2d(32, 8, 1, has_bias=True),
        gelu=nn.GELU(approximate=False),
        scale=ones(8),
    )


def unet(self, x):
    x = self.enter(x)
    return self.leave(torch.cat([x, self.up(self.norm(self.down(x)))], 1))


def ported_unet(self, x):
    x = ops.silu(self.b(self.a(x)))
    return self.f(ops.cat([x, self.e(self.d(self.c(x)))], 1))


def unets():
    down = {"pad_mode": "pad", "padding": 1, "has_bias": True}
    up = {**down, "padding": (1, 0, 1, 0)}
    return lambda: module(
        unet,
        enter=t.Sequential(t.Conv2d(3, 6, 3, padding=1), t.GroupNorm(2, 6), t.SiLU()),
        down=t.Conv2d(6, 12, 3, 2, 1),
        norm=t.InstanceNorm2d(12, affine=True),
        up=t.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1),
        leave=t.Conv2d(12, 2, 3, padding=1),
    ), lambda: cell(
        ported_unet,
        a=nn.Conv2d(3, 6, 3, has_bias=True),
        b=nn.GroupNorm(2, 6),
        c=nn.Conv2d(6, 12, 3, 2, **down),
        d=nn.GroupNorm(12, 12),
        e=nn.Conv2dTranspose(12, 6, 3, 2, **up),
        f=nn.Conv2d(12, 2, 3, has_bias=True),
    )


def centred(self, x):
    """A layer norm by hand: its class is no norm's, whose weight a recipe would decay."""
    x = x - x.mean(-1, keep_dims=True)
    return x / ops.sqrt((x * x).mean(-1, keep_dims=True) + 1e-5) * self.weight + self.bias


class Padded(Other):
    def construct(self, x):
        return super().construct(ops.pad(x, (1,) * 4))


class Repeated(Other):
    """One block three times, under one name."""

    def construct(self, x):
        for _ in range(3):
            x = self.layers(x)
        return self.last(x)


def residual(self, x):
    """The shortcut's convolution has the shape of the last one."""
    x = torch.relu(self.norm(self.first(x)))
    out = self.inner_norm(self.inner(torch.relu(x - 0.1)))
    return self.head(torch.relu(out + self.skip(x)).mean((2, 3)))


def ported_residual(self, x):
    """The shortcut is computed first."""
    x = ops.relu(self.bn_a(self.stem(x)))
    short = self.short(x)
    x = self.bn_b(self.body(ops.relu(x - 0.1)))
    return self.head(ops.relu(x + short).mean((2, 3)))


def frozen(net):
    """All but the last layer."""
    named = net.named_parameters() if isinstance(net, t.Module) else net.parameters_and_names()
    for name, parameter in named:
        parameter.requires_grad = name.startswith(("head", "last"))
    return net


def block():
    return t.Sequential(t.Linear(8, 8), t.BatchNorm1d(8), t.Sigmoid())


def ported_block() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(8, 8), nn.BatchNorm1d(8), nn.Sigmoid())


UNCOMPILED = {"mode": "pynative"}  # of layers that other pairs compile
PAIRS = {
    "a PReLU and bilinear upsampling": Pair(
        images,
        lambda: Theirs(
            t.Conv2d(3, 8, 1),
            t.PReLU(8),
            t.Upsample(scale_factor=2, mode="bilinear"),
            t.Sigmoid(),
        ),
        lambda: Other(
            nn.Conv2d(3, 8, 1, has_bias=True),
            nn.PReLU(8),
            nn.Upsample(
                scale_factor=(2.0, 2.0),
                recompute_scale_factor=True,
                mode="bilinear",
                align_corners=False,
            ),
            nn.Sigmoid(),
        ),
    ),
    "convolution and BatchNorm": Pair(
        images,
        lambda: Theirs(
            t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8), t.ReLU(), t.MaxPool2d(2)
        ),
        lambda: Other(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)),
        CLIPPED,
    ),
    "a residual block": Pair(
        images,
        lambda: theirs(
            residual,
            first=t.Conv2d(3, 8, 3, padding=1),
            norm=t.BatchNorm2d(8),
            inner_norm=t.BatchNorm2d(8),
            inner=t.Conv2d(8, 8, 3, padding=1, bias=False),
            skip=t.Sequential(t.Conv2d(8, 8, 3, padding=1, bias=False), t.BatchNorm2d(8)),
        ),
        lambda: ours(
            ported_residual,
            stem=nn.Conv2d(3, 8, 3, has_bias=True),
            bn_a=nn.BatchNorm2d(8),
            bn_b=nn.BatchNorm2d(8),
            short=nn.SequentialCell(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)),
            body=nn.Conv2d(8, 8, 3),
        ),
        options=UNCOMPILED,
    ),
    "a bias before BatchNorm, which drifts under Adam": Pair(
        lambda: (draw(8, 3, 8, 8), labels(8)),
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.BatchNorm2d(8), t.ReLU()),
        lambda: Other(nn.Conv2d(3, 8, 3, has_bias=True), nn.BatchNorm2d(8), nn.ReLU()),
        ADAMW,
        {"accumulate": 4},
        updates=5,
    ),
    "ConvNeXt": Pair(
        lambda: (draw(2, 3, 16, 16), labels(2)),
        lambda: Theirs(t.Conv2d(3, 8, 4, 4), convnext_block(), convnext_block()),
        lambda: Other(
            nn.Conv2d(3, 8, 4, 4, pad_mode="valid", has_bias=True),
            ported_convnext_block(),
            ported_convnext_block(),
        ),
        ADAMW,
    ),
    "UNet": Pair(
        lambda: (draw(2, 3, 16, 16), draw(2, 2, 16, 16)),
        *unets(),
        options={"loss": ops.mse_loss, "reference_loss": F.mse_loss},
    ),
    "padding in a function, a Hardtanh for a ReLU6, nothing for a dropout of 0": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU6(), t.Dropout(0.0)),
        lambda: Padded(
            nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True),
            nn.Hardtanh(0.0, 6.0),
            nn.Identity(),
        ),
        options=UNCOMPILED,
    ),
    "frozen body": Pair(
        images,
        lambda: frozen(Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU())),
        lambda: frozen(Other(nn.Conv2d(3, 8, 3, has_bias=True), nn.ReLU())),
    ),
    "one direction": Pair(
        lambda: (draw(4, 3, 16), labels(4)),
        lambda: Theirs(t.Conv1d(3, 8, 3, padding=1), t.LeakyReLU(0.1), t.AvgPool1d(2)),
        lambda: Other(nn.Conv1d(3, 8, 3, has_bias=True), nn.LeakyReLU(0.1), nn.AvgPool1d(2, 2)),
        options=UNCOMPILED,
    ),
    "a layer norm ported by hand": Pair(
        vector,
        lambda: Theirs(t.Linear(8, 8), t.LayerNorm(8)),
        lambda: Other(nn.Dense(8, 8), cell(centred, weight=ones(8), bias=ones(8))),
        ADAMW,
        UNCOMPILED,
    ),
    "one block under three names": Pair(
        vector,
        lambda: Theirs(*[block()] * 3),
        lambda: Other(*[ported_block()] * 3),
    ),
    "one block under three names, and under one": Pair(
        vector,
        lambda: Theirs(*[block()] * 3),
        lambda: Repeated(ported_block()),
        options=UNCOMPILED,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_of_each_kind_agrees(name):
    PAIRS[name].climb_compiled()


class NormAct(t.BatchNorm2d):
    """timm's BatchNormAct2d: a BatchNorm and the activation after it."""

    def __init__(self, act):
        super().__init__(8)
        self.act = act

    def forward(self, x):
        return self.act(super().forward(x))


def norm_and_act() -> nn.Cell:
    return Ours(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU())


PORTS = {
    "a layer that stands for two": Pair(
        images, lambda: Theirs(t.Conv2d(3, 8, 1, bias=False), NormAct(t.ReLU())), norm_and_act
    ),
    "a layer that ends before what the other net does inside of it": Pair(
        vector,
        lambda: Theirs(
            module(lambda n, x: (x + n.a(x)) / 2, a=t.Linear(8, 8)),
            module(lambda n, x: n.a(x), a=t.Linear(8, 8)),
            t.Linear(8, 8),
        ),
        lambda: ours(
            lambda n, x: n.head(n.part[2](n.part[1]((x + n.part[0](x)) / 2) * 3)),
            cell(lambda n, x: n.a(x), a=nn.Dense(8, 8)),
            cell(lambda n, x: n.a(x) / 3, a=nn.Dense(8, 8)),
            nn.Dense(8, 8),
        ),
    ),
}


@pytest.mark.parametrize("name", PORTS)
def test_each_right_port_agrees(name):
    PORTS[name].climb()


def test_a_layer_that_stands_for_two_others_differs():
    module = Theirs(t.Conv2d(3, 8, 1, bias=False), NormAct(t.SiLU()))
    ladder = ladder_of(norm_and_act(), module, [images()])
    assert (title_of_stage(ladder.first_stage), ladder.first_layer.name) == (
        "eval forward",
        "part.1",
    ), table(ladder)


def test_convolutions_may_be_dense_layers_on_tokens():
    """Each has the other's numbers, in [n, h·w, c] for [n, c, h, w]; so do dropout masks."""

    def planes(self, x):
        return self.head(self.mix(self.drop(self.part(x))).tanh().mean((2, 3)))

    def tokens(self, x):
        x = self.part(x)
        x = x.reshape((x.shape[0], x.shape[1], -1)).swapaxes(1, 2)
        return self.head(self.mix(self.drop(x)).tanh().mean(1))

    module = theirs(planes, t.Conv2d(3, 8, 2, 2), drop=t.Dropout(0.3), mix=t.Conv2d(8, 8, 1))
    stem = nn.Conv2d(3, 8, 2, 2, pad_mode="valid", has_bias=True)
    net = ours(tokens, stem, drop=nn.Dropout(p=0.3), mix=nn.Dense(8, 8))
    ladder = ladder_of(net, module, [images() for _ in range(2)], SGD)
    assert ladder.agrees, table(ladder)
    assert stage_of(ladder, "train layers, with dropout").verdict == "ok"
