"""Bugs of real ports, from the histories of mindnlp, mindone, mindcv and others, as pairs of small
nets.

Each row has the commits that had the bug or corrected it; the code here is written anew.
docs/parity.md has the table: what the ladder answers, or why it cannot.
"""

import linecache
import re
from functools import partial

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Uniform

from resnet_fn.parity import __main__ as command
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from small_nets import SGD, ladder_of, layer_norm, ones, ours, own_step, t, theirs, torch

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")


def inputs(*shape, classes=5, scale=1.0, masked=False):
    """Batches of eight samples; `masked`: beside them which positions are there."""
    rng, made = np.random.default_rng(0), []
    for _ in range(3):
        x = (scale * rng.standard_normal((8, *shape))).astype(np.float32)
        mask = np.arange(shape[0]) < rng.integers(2, shape[0] + 1, 8)[:, None]
        made.append(((x, mask) if masked else x, rng.integers(0, classes, 8).astype(np.int32)))
    return made


SENTENCES, MASKED, IMAGES = inputs(6, 16), inputs(6, 16, masked=True), inputs(3, 16, 16, classes=10)
WITHOUT_PADDING = [((x, np.ones_like(mask)), y) for (x, mask), y in MASKED]


def climb(module, net, batches=SENTENCES, use=SGD, **options):
    return ladder_of(net, module, batches, use, **{"quick": False, **options})


def denses(names, kind=nn.Dense):
    return {**{name: kind(16, 16) for name in names}, "head": kind(16, 5)}


def of_denses(names, forward, construct, *batches_and_recipe, **options):
    """The ladder of two functions of dense layers with these names, and of a head."""
    nets = theirs(forward, **denses(names, t.Linear)), ours(construct, **denses(names))
    return climb(*nets, *batches_and_recipe, **options)


def scores_of(self, x):
    return self.q(x) @ self.k(x).swapaxes(1, 2) / 4


def attended(self, x, scores):
    return self.head((scores.softmax(-1) @ self.v(x)).mean(1))


def attention_twice_divided():
    def forward(self, x):
        return self.head(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)).mean(1))

    def construct(self, x):
        factor = x.shape[-1] ** 0.5  # right: its root, since q and k are both divided
        return attended(self, x, self.q(x) / factor @ self.k(x).swapaxes(1, 2) / factor)

    return of_denses("qkv", forward, construct)


def quick_gelu():
    def forward(self, x):
        h = self.q(self.norm(x))
        return self.head((h * torch.sigmoid(1.702 * h)).mean(1))

    def construct(self, x):
        return self.head(self.act(self.q(self.norm(x))).mean(1))

    net = ours(construct, norm=layer_norm(16), act=nn.GELU(), **denses("q"))
    return climb(theirs(forward, norm=t.LayerNorm(16), **denses("q", t.Linear)), net)


def lost_mask(batches=MASKED):
    def forward(self, x, mask):
        scores = scores_of(self, x)
        return attended(self, x, scores.masked_fill(~mask[:, None, :], -1e9))

    def construct(self, x, mask):
        scores = scores_of(self, x)
        # a new tensor, which nobody takes
        scores.masked_fill(ops.logical_not(mask).expand_dims(1), -1e9)
        return attended(self, x, scores)

    return of_denses("qkv", forward, construct, batches)


def norm_of_each_frame():
    def forward(self, x):
        return self.head(torch.relu(self.norm(x)).mean((2, 3, 4)))

    def construct(self, x):
        b, c, f, h, w = x.shape
        x = self.norm(x.transpose(0, 2, 1, 3, 4).reshape(b * f, c, h, w))
        return self.head(
            ops.relu(x.reshape(b, f, c, h, w).transpose(0, 2, 1, 3, 4)).mean((2, 3, 4))
        )

    module = theirs(forward, norm=t.GroupNorm(4, 8), head=t.Linear(8, 5))
    net = ours(construct, norm=nn.GroupNorm(4, 8), head=nn.Dense(8, 5))
    return climb(module, net, inputs(8, 3, 6, 6))


def other_pools():
    def forward(self, x):
        x = self.stem(x).sigmoid()
        return self.head((self.pool(x) + self.down(x)).mean((2, 3)))

    module = theirs(
        forward,
        stem=t.Conv2d(3, 8, 3, 2, 1, bias=False),
        pool=t.AvgPool2d(3, 2, 1),
        down=t.AvgPool2d(2, 2),
        head=t.Linear(8, 10),
    )
    net = ours(
        forward,
        stem=nn.Conv2d(3, 8, 3, 2),
        pool=nn.AvgPool2d(3, 2, pad_mode="same"),
        down=nn.MaxPool2d(2, 2, pad_mode="same"),
        head=nn.Dense(8, 10),
    )
    return climb(module, net, IMAGES)


def batch_statistics():
    def forward(self, x):
        return self.head(self.norm(self.conv(x)).sigmoid().mean((2, 3)))

    module = theirs(
        forward, conv=t.Conv2d(3, 8, 3, 1, 1), norm=t.BatchNorm2d(8), head=t.Linear(8, 10)
    )
    conv, norm = nn.Conv2d(3, 8, 3, has_bias=True), nn.BatchNorm2d(8, use_batch_statistics=True)
    return climb(module, ours(forward, conv=conv, norm=norm, head=nn.Dense(8, 10)), IMAGES)


def repeated_otherwise():
    def forward(self, x):
        y = self.head(torch.cat([x.mean(1), x.amax(1)]) + self.cond(x[:, 0]).repeat(2, 1))
        return y[: x.shape[0]] + y[x.shape[0] :]

    def construct(self, x):
        # what Tensor.repeat(2, axis=0) meant before 2.6
        c = ops.repeat_interleave(self.cond(x[:, 0]), 2, 0)
        y = self.head(ops.cat([x.mean(1), x.amax(1)]) + c)
        return y[: x.shape[0]] + y[x.shape[0] :]

    return of_denses(["cond"], forward, construct)


def projection_not_transposed():
    def forward(self, x):
        return self.head(self.text_projection(x.mean(1)))

    def construct(self, x):
        return self.head(ops.matmul(x.mean(1), self.text_projection))

    module = theirs(forward, text_projection=t.Linear(16, 16, bias=False), head=t.Linear(16, 5))
    return climb(module, ours(construct, text_projection=ones(16, 16), head=nn.Dense(16, 5)))


def sample_for_mode():
    def forward(self, x):
        return self.head(self.moments(x.mean(1)).chunk(2, -1)[0])

    def construct(self, x):
        mean, logvar = ops.chunk(self.moments(x.mean(1)), 2, -1)
        return self.head(mean + ops.exp(0.5 * logvar) * ops.standard_normal(mean.shape))

    module = theirs(forward, moments=t.Linear(16, 32), head=t.Linear(16, 5))
    return climb(module, ours(construct, moments=nn.Dense(16, 32), head=nn.Dense(16, 5)))


def smallest_in_half_precision(precision="fp16"):
    def forward(self, x, mask):
        scores = scores_of(self, x)
        hidden = 1 - mask[:, None, :].to(scores.dtype)
        return attended(self, x, scores + hidden * torch.finfo(scores.dtype).min)

    def construct(self, x, mask):
        scores = scores_of(self, x)
        hidden = 1 - mask.expand_dims(1).astype(scores.dtype)
        scores = scores + hidden * Tensor(np.finfo(np.float32).min).astype(scores.dtype)
        return self.head((scores.softmax(-1) @ self.v(x)).mean(1).astype(mindspore.float32))

    net = ours(construct, **denses("qkv"))
    for name in "qkv":
        net._cells[name].to_float(mindspore.float16 if precision == "fp16" else mindspore.float32)
    use = SGD.changed(precision=precision)
    return climb(theirs(forward, **denses("qkv", t.Linear)), net, MASKED, use)


def log_of_sum(scale=10.0):
    def forward(self, x):
        return self.head(torch.logsumexp(20 * self.q(x), -1))

    def construct(self, x):
        return self.head(ops.log(ops.exp(20 * self.q(x)).sum(-1)))

    module = theirs(forward, q=t.Linear(16, 16), head=t.Linear(6, 5))
    net = ours(construct, q=nn.Dense(16, 16), head=nn.Dense(6, 5))
    return climb(module, net, inputs(6, 16, scale=scale))


def deviation_by_n():
    def forward(self, x):
        x = self.q(x)
        return self.head(x.std(1))  # MindSpore's is by n on a CPU, on a card by n - 1

    return of_denses("q", forward, forward)


def experts_in_another_order():
    def forward(self, x):
        x = x.mean(1)
        p, i = self.gate(x).softmax(-1).topk(2)
        return self.head((torch.einsum("bc,bkcd->bkd", x, self.w[i]) * p[..., None]).sum(1))

    def construct(self, x):
        x = x.mean(1)
        p, i = self.gate(x).softmax(-1).topk(2)
        flat = i.swapaxes(0, 1).reshape(-1)  # by expert, then by sample
        y = ops.bmm(ops.cat([x, x]).expand_dims(1), self.w[flat]).squeeze(1)
        # right: reshape(2, -1, 16).swapaxes(0, 1)
        return self.head((y.reshape(-1, 2, 16) * p.expand_dims(-1)).sum(1))

    w = t.Parameter(torch.randn(4, 16, 16) / 4)
    module = theirs(forward, gate=t.Linear(16, 4), w=w, head=t.Linear(16, 5))
    return climb(
        module, ours(construct, gate=nn.Dense(16, 4), w=ones(4, 16, 16), head=nn.Dense(16, 5))
    )


def scale_that_is_constant():
    def forward(self, x):
        x = self.image(x.mean(1))
        return self.logit_scale.exp() * self.head(x / x.norm(dim=-1, keepdim=True))

    scale = t.Parameter(torch.tensor(2.6592))
    module = theirs(forward, **denses(["image"], t.Linear), logit_scale=scale)
    return climb(module, ours(forward, **denses(["image"]), logit_scale=Tensor(2.6592)))


class PassThrough(nn.Cell):
    def construct(self, x):
        return ops.clamp(x, -1.0, 1.0)

    def bprop(self, x, out, dout):
        return (dout,)  # right: only where |x| < 1


def backward_by_hand():
    def forward(self, x):
        return self.head(self.act(3 * self.q(x)).mean(1))

    module = theirs(forward, act=t.Hardtanh(), **denses("q", t.Linear))
    return climb(module, ours(forward, act=PassThrough(), **denses("q")))


def patches_of_zeros():
    def forward(self, x):
        return self.head(self.proj(x).mean((2, 3)))

    module = theirs(forward, proj=t.Conv2d(3, 16, 4, 4), head=t.Linear(16, 10))
    t.init.xavier_uniform_(module.proj.weight.data.view(16, -1))
    proj = nn.Conv2d(3, 16, 4, 4, pad_mode="valid", has_bias=True)
    # initializer(…) is lazy: its reshape was of memory that nothing had filled. MindSpore 2.10
    # raises an error there.
    proj.weight.set_data(ops.zeros(proj.weight.shape))
    net = ours(forward, proj=proj, head=nn.Dense(16, 10))
    return climb(module, net, IMAGES, initialisation=True)


def other_range():
    def forward(self, x):
        return self.head((self.norm(self.conv(x)) + x[:, :1]).sigmoid().mean((2, 3)))

    module = theirs(
        forward,
        conv=t.Conv2d(3, 8, 3, 1, 1, bias=False),
        norm=t.BatchNorm2d(8),
        head=t.Linear(8, 10),
    )
    t.init.uniform_(module.conv.weight, 0.0, 0.2)
    t.init.zeros_(module.norm.weight)
    conv = nn.Conv2d(3, 8, 3, weight_init=Uniform(0.2))  # -0.2 … 0.2
    net = ours(forward, conv=conv, norm=nn.BatchNorm2d(8), head=nn.Dense(8, 10))
    return climb(module, net, IMAGES, initialisation=True)


def pooled(*batches_and_recipe, **options):
    """A right port: a layer, its mean, a head; what is wrong is in the options."""

    def forward(self, x):
        return self.head(self.q(x).tanh().mean(1))

    return of_denses("q", forward, forward, *batches_and_recipe, **options)


def loss_of_probabilities():
    def loss(logits, labels):
        target = ops.one_hot(labels, 5, Tensor(1.0), Tensor(0.0))
        return ops.binary_cross_entropy(logits, target, ops.ones_like(target))

    def their_loss(logits, labels):
        return F.binary_cross_entropy_with_logits(logits, F.one_hot(labels.long(), 5).float())

    return pooled(loss=loss, reference_loss=their_loss)


def loss_in_half_precision():
    def loss(logits, labels):
        return ops.cross_entropy(logits.astype(mindspore.float16), labels)

    return pooled(loss=loss, mode="graph")


def mean_of_means():
    batches = [
        (x, np.where(np.arange(6) < 1 + np.arange(8)[:, None] % 6, y[:, None], -100))
        for x, y in SENTENCES
    ]

    def forward(self, x):
        return self.head(self.q(x).tanh())

    def loss(logits, labels):
        return ops.cross_entropy(
            logits.reshape(-1, 5), labels.astype(mindspore.int32).reshape(-1), ignore_index=-100
        )

    def their_loss(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten().long())

    options = {"accumulate": 2, "loss": loss, "reference_loss": their_loss}
    return of_denses("q", forward, forward, batches, **options)


def gradients_of_others():
    def forward(self, x):
        return self.head(self.b(self.a(x).tanh()).tanh().mean(1))

    def in_groups(net, gradients, plan):  # of an optimizer that has b before a
        places = {parameter.name: index for index, parameter in enumerate(net.trainable_params())}
        other = {"a.weight": "b.weight", "b.weight": "a.weight"}
        return [gradients[places[other.get(name, name)]] for name in places]

    return of_denses("ab", forward, forward, make_step=own_step(in_groups))


def divided_twice():
    def mean(net, sums, plan):
        return [gradient / plan.micro_batches**2 for gradient in sums]

    return pooled(accumulate=2, make_step=own_step(mean))


def rate_too_few():
    def faulty(update, lr=0.02, milestones=(1, 2)):
        rates = [lr * 0.1**i for i, _ in enumerate(milestones)]  # the first is lr: one rate too few
        return nn.piecewise_constant_lr(list(milestones), rates)[min(update, milestones[-1] - 1)]

    use = SGD.changed(
        epochs=3,
        warmup_epochs=0.0,
        schedule="step",
        milestones=(1.0, 2.0),
        milestone_factor=0.1,
        min_learning_rate=0.0,
    )
    return pooled(SENTENCES, use, schedule=faulty)


def clipped_by_the_square():
    def by_square(net, gradients, plan):
        total = sum((gradient**2).sum() for gradient in gradients)  # the norm is its root
        limit = plan.clip_norm / (total + 1e-6) if plan.clip_norm else Tensor(1.0)
        factor = ops.minimum(limit, Tensor(1.0))
        return [gradient * factor for gradient in gradients]

    use = SGD.changed(clip_norm=0.05)
    return pooled(SENTENCES, use, make_step=own_step(by_square))


# "bug | commits | first stage | cause, as it is named, or in brackets why there is none | what
# stands at the line of the reference that is named with it": function
CASES = {
    "attention's scores divided by d in place of √d | mindnlp 2d0f1bfab | eval forward | "
    "multiplied by 0.25^2 for "
    "multiplied by 0.25 in the port | `F.scaled_dot_product_attention(`": attention_twice_divided,
    "QuickGELU ported as nn.GELU | mindone 150bd8b9 | eval forward | tanh GELU of the first factor "
    "instead of the product in the port | `torch.sigmoid(1.702 * h)`": quick_gelu,
    "`masked_fill` whose result is lost (seven commits) | mindone f572e1fc, mindnlp 5f753e513, "
    "c0c5ad87a, "
    "5d2c998e3, b414a073a, 13b12d15f, 2404655e2 | eval forward | no mask in the port | "
    "`scores.masked_fill(`": lost_mask,
    "… with batches that have no padding | – | agrees | (a batch must contain padding) | ": partial(
        lost_mask, WITHOUT_PADDING
    ),
    "GroupNorm of each frame in place of the clip | mindone 8a34dcb5 | eval forward | each frame "
    "(axis 2) alone "
    "in the port | `self.norm(x)`": norm_of_each_frame,
    "Res2Net: `same` at stride 2, a maximum for an average | mindcv ba0eb91 | eval forward | a "
    "maximum for the "
    "average in the port | `self.pool(x) + self.down(x)`": other_pools,
    "BatchNorm with the batch's statistics in evaluation | mindcv 37300fb | eval forward | "
    "batch_statistics always "
    "in the port, in training in the reference | ": batch_statistics,
    "`repeat` as NumPy means it | mindone 28f59f5d, e9ea3398 | eval forward | repeat_interleave "
    "for repeat in the port | "
    "`.repeat(2, 1)`": repeated_otherwise,
    "a projection that is a Parameter, not transposed | mindone e2e13c7f | weights | "
    "text_projection weight [16, "
    "16] has no counterpart in the port | ": projection_not_transposed,
    "a sample where the mode of a Gaussian was meant | mindone b101bbe4 | eval forward | the net "
    "gives another "
    "output each time it is called in evaluation mode | ": sample_for_mode,
    "a mask of float32's minimum in half precision | mindnlp f97847a8f, mindocr a7f3c756, 07476b20 "
    "| eval forward "
    "|  | ": smallest_in_half_precision,
    "… in float32 | – | agrees | (it is right there: compare in the precision of your training) | ": partial(
        smallest_in_half_precision, "fp32"
    ),
    "log(sum(exp)) | mindnlp 6d487458c | agrees | (random inputs do not overflow) | ": partial(
        log_of_sum, 1.0
    ),
    "… with inputs ten times as large | – | eval forward | log(sum(exp)), which overflows, in the port | "
    "`torch.logsumexp(`": log_of_sum,
    "a standard deviation by n in place of n − 1 | mindnlp a90db347d | eval forward | divided by n "
    "instead of n − 1 "
    "in the port | `x.std(1)`": deviation_by_n,
    "experts put back in another order | mindformers 288a77a95 | eval forward | einsum "
    "bc,bkcd->kbd, reshaped, for "
    "bc,bkcd->bkd in the port | `torch.einsum(`": experts_in_another_order,
    "a scale that is no Parameter | mindnlp 500d0f321 | weights | logit_scale [] has "
    "no counterpart in the port | ": scale_that_is_constant,
    "a backward pass written by hand that passes all through | mindtorch 28f5cc3f5, 235ede59a, "
    "mindnlp 57101d12d, "
    "mindcv 87ccabc | gradients | the gradient passed through as it is in the port | "
    "`self.act(3 * self.q(x))`": backward_by_hand,
    "a patch embedding of zeros | mindcv 2a07185, mindone 91a28f6f | initialisation | proj.weight: "
    "all 0 in the port, "
    "drawn in | ": patches_of_zeros,
    "weights from −a on in place of 0, gamma 1 in place of 0 | mindnlp 56774dd92, models e6a947fac "
    "| "
    "initialisation | norm.gamma: all 1 in the port, all 0 in the reference | ": other_range,
    "the loss of probabilities on logits | mindnlp f5d3e802b, 2eecfecf3 | an error | the value of "
    "'input_x' must "
    "be between 0 and 1 | ": loss_of_probabilities,
    "the loss in half precision | mindocr 4378b893, b092671d, 63d3d7de | loss |  | ": loss_in_half_precision,
    "a mean of micro-batches' means, of unequal numbers of tokens | mindformers 9758fe7f6 | agrees "
    "| (the "
    "reference accumulates as this side does) | ": mean_of_means,
    "gradients in the order of another list (`--our-step`) | mindnlp 93d1b1f1b, mindformers "
    "89a3cce2b | gradients "
    "|  | ": gradients_of_others,
    "accumulated gradients divided twice (`--our-step`) | models f4926bf5c, mindformers b859791a4 "
    "| gradients | "
    "every gradient is 0.5 times the reference's | ": divided_twice,
    "a schedule with one rate too few | mindcv f00ef08 | learning rate |  | ": rate_too_few,
    "a moving average of one's own | mindyolo 3215f24, mindocr f2987e2e | agrees | (only the "
    "package's own average "
    "is compared) | ": pooled,
    "clipping by the square of the norm (`--our-step`) | entrenar#312 | gradient norm |  | ": clipped_by_the_square,
}
_WORKERS = (
    "the norm of one worker, parameters counted once for each worker | hyper-parallel#446, #735, "
    "models bd91edb43 | "
    "gradient norm | each worker takes the norm of its own gradients (two workers: "
    "tests/parity/test_ranks.py) | "
)
ROWS = {row.partition(" | ")[0]: row for row in CASES}


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value")
@pytest.mark.parametrize("name", ROWS)
def test_each_real_bug_ends_as_its_row_says(name):
    _, _, stage, words, code = ROWS[name].split(" | ")
    if stage == "an error":
        with pytest.raises(RuntimeError, match=words):
            CASES[ROWS[name]]()
        return
    ladder = CASES[ROWS[name]]()
    assert ladder.agrees == (stage == "agrees"), table(ladder)
    if not ladder.agrees:
        assert title_of_stage(ladder.first_stage) == stage, table(ladder)
        layer = ladder.first_layer.hints if ladder.first_layer else ()
        named = [hint for hint in (*ladder.first_stage.hints, *layer) if words in hint]
        assert named or not words, table(ladder)
        line = re.match(r"test_cases.py:(\d+)", "".join(named))
        assert code.strip("`") in (linecache.getline(__file__, int(line[1])) if line else "")


def test_15_real_bugs_have_causes_10_have_lines():
    rows = [row.split(" | ") for row in CASES]
    assert sum(bool(cause) and stage != "agrees" for _, _, stage, cause, _ in rows) >= 15
    assert sum(bool(code) for *_, code in rows) >= 10


def test_the_table_in_the_docs_is_this_one(table_in_docs):
    head = [
        "| bug | commits | first stage | cause, or why none | the reference's line |",
        "|---|---|---|---|---|",
    ]
    rows = [f"| {row} |" for row in (*CASES, _WORKERS)]
    assert table_in_docs(__file__, "real bugs") == [*head, *rows]


def test_a_step_given_by_flag_is_compared(tmp_path, capsys):
    flags = (
        "--model resnet8 --image-size 8 --steps 1 --recipe digits --clip-norm 0 --quick "
        "--no-initialisation --mode pynative --our-step"
    )
    for factor in (1, 2):
        change = f"lambda net, gradients, plan: [{factor} * one for one in gradients]"
        text = f"from small_nets import own_step\n\nmake_step = own_step({change})\n"
        (tmp_path / f"step{factor}.py").write_text(text)
        assert command.main([*flags.split(), f"{tmp_path}/step{factor}.py:make_step"]) == factor - 1
        printed = capsys.readouterr().out
        assert ("every gradient is 2 times the reference's" in printed) == (factor == 2)
