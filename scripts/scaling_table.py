"""Prints the tables of docs/scaling.md: all-reduce against compute, ResNet-50 on 8 to 4,096 Ascend 910 cards, on paper.

    python scripts/scaling_table.py

Times are in seconds, sizes in bytes, links in bytes a second. docs/scaling.md names the source of every constant.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

# Published or documented.
CARDS_PER_NODE = 8
ONE_CARD = {32: 1787, 256: 2115}  # images/s of one card, by batch
IMAGES, TEST_IMAGES = 1_281_167, 50_000
LARS_BATCH = 32_768
BUCKET = 25 * 2**20  # default of mindspore.parallel.distributed.DistributedDataParallel
# Median seconds of one evaluation of 51,200 images in MLPerf 0.7 logs, by cards.
EVALUATION = {128: 0.518, 256: 0.363}
# (what, cards, batch of a card, measured seconds of a step)
MEASURED = (
    ("MindSpore 0.2, 8 cards", 8, 32, 8 * 32 / 13_689),
    ("MindSpore 0.2, 16 cards", 16, 32, 16 * 32 / 27_090),
    ("MindSpore 0.5, 8 cards", 8, 256, 8 * 256 / 16_600),
    ("MindSpore 0.5, 16 cards", 16, 256, 16 * 256 / 32_768),
    ("MLPerf 0.7, MindSpore 0.3.1", 512, 64, 5.95 / 156),
    ("MLPerf 0.7, TensorFlow", 1024, 32, 4.74 / 156.4),
)

# Assumed.
BACKWARD_SHARE = 2 / 3  # of a step's compute: gradients of inputs and of weights, each as dear as the forward pass

ALL_CARDS = (8, 16, 32, 128, 512, 1024, 4096)
SINGLE_TENSORS = 0  # bucket size: one call for each tensor

AllReduce = Callable[[float, int], float]


class Links(NamedTuple):
    """What connects the cards, in one direction.

    Attributes:
        node, network: bandwidth between two cards of a node (one of a card's three HCCS ports, 240 Gbit/s), and of a
            card's own 100 Gbit/s RoCE port. That both are per direction is assumed.
        node_latency, network_latency: of one message. Assumed: NCCL's figures of a ring over NVLink and a network.
    """

    node: float = 240e9 / 8
    network: float = 100e9 / 8
    node_latency: float = 3.4e-6
    network_latency: float = 9.6e-6


LINKS = Links()


class Gradient(NamedTuple):
    """A tensor of the net: its number of values, and the multiply-adds of its layer's forward pass for one image."""

    values: int
    work: int


def ring_bytes(size: float, ranks: int) -> float:
    """Bytes that each rank sends in a ring all-reduce; no all-reduce sends less (Patarasuk & Yuan 2009)."""
    return 2 * (ranks - 1) / ranks * size


def ring(size: float, cards: int, links: Links = LINKS) -> float:
    """Seconds of one ring through all cards: its slowest link sets the pace, a chunk passes every hop twice."""
    nodes = math.ceil(cards / CARDS_PER_NODE)
    bandwidth = links.node if nodes == 1 else links.network
    latency = 2 * ((cards - nodes) * links.node_latency + (nodes - 1) * links.network_latency)
    return ring_bytes(size, cards) / bandwidth + latency


def two_level(size: float, cards: int, network_steps: Callable[[int], float], links: Links) -> float:
    """Seconds of reduce-scatter in each node, all-reduce across nodes of each card's part, all-gather in each node."""
    inside = min(cards, CARDS_PER_NODE)
    nodes = cards // inside
    in_node = ring_bytes(size, inside) / links.node + 2 * (inside - 1) * links.node_latency
    across = ring_bytes(size / inside, nodes) / links.network + network_steps(nodes) * links.network_latency
    return in_node + across


def two_level_ring(size: float, cards: int, links: Links = LINKS) -> float:
    """`two_level` with a ring across the nodes."""
    return two_level(size, cards, lambda nodes: 2 * (nodes - 1), links)


def two_level_halving(size: float, cards: int, links: Links = LINKS) -> float:
    """`two_level` with recursive halving and doubling across the nodes, HCCL's default on this hardware.

    Raises:
        ValueError: the number of nodes is no power of two.
    """
    nodes = max(1, cards // CARDS_PER_NODE)
    if nodes & (nodes - 1):
        raise ValueError(f"cards: {cards} are {nodes} nodes, no power of two; give 8, 16, 32, …")
    return two_level(size, cards, lambda count: 2 * math.log2(count), links)


def resnet50() -> list[Gradient]:
    """ResNet-50's trained tensors in forward order (torchvision's tree, stride in the 3×3, 224 pixels)."""
    gradients: list[Gradient] = []

    def convolution(inputs: int, outputs: int, kernel: int, side: int) -> None:
        weights = inputs * outputs * kernel**2
        gradients.extend((Gradient(weights, weights * side**2), Gradient(outputs, 0), Gradient(outputs, 0)))

    convolution(3, 64, 7, 112)
    inputs, side = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            before = side
            if block == 0 and stage > 0:
                side //= 2
            convolution(inputs, width, 1, before)
            convolution(width, width, 3, side)
            convolution(width, 4 * width, 1, side)
            if block == 0:
                convolution(inputs, 4 * width, 1, side)
            inputs = 4 * width
    gradients.extend((Gradient(2048 * 1000, 2048 * 1000), Gradient(1000, 0)))
    return gradients


def compute(batch: float) -> float:
    """Seconds of one card's forward and backward pass: the line through the two published batch sizes."""
    (small, small_rate), (large, large_rate) = sorted(ONE_CARD.items())
    small_time, large_time = small / small_rate, large / large_rate
    return small_time + (batch - small) * (large_time - small_time) / (large - small)


def exposed(
    gradients: list[Gradient], width: int, backward: float, cards: int, all_reduce: AllReduce, bucket: int = BUCKET
) -> float:
    """Seconds by which the all-reduce outlasts the backward pass.

    Layers finish from the last to the first, in time proportional to their multiply-adds. A bucket is sent when it
    has reached its size, after the one before it.

    Args:
        gradients: in forward order.
        width: bytes of a value.
        backward: seconds of the backward pass.
        cards, all_reduce: the seconds of one call are all_reduce(size, cards).
        bucket: bytes after which a bucket is closed; `SINGLE_TENSORS`: one call for each tensor.
    """
    total = sum(gradient.work for gradient in gradients)
    done = work = size = 0.0
    for position, gradient in enumerate(reversed(gradients)):
        work += gradient.work
        size += gradient.values * width
        if size >= bucket or position == len(gradients) - 1:
            done = max(done, backward * work / total) + all_reduce(size, cards)
            size = 0.0
    return done - backward


def evaluation(cards: int, block: int = 64) -> float:
    """Seconds of evaluating 50,000 images: fixed part and images/s of a card from two MLPerf runs, blocks as here."""
    (few, slow), (many, fast) = sorted(EVALUATION.items())
    per_image = (slow - fast) / (51_200 / few - 51_200 / many)
    fixed = slow - 51_200 / few * per_image
    return fixed + math.ceil(TEST_IMAGES / cards / block) * block * per_image


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [head, ("---",) + ("---:",) * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ms(seconds: float) -> str:
    """Milliseconds, three digits or so."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}"


def percent(share: float) -> str:
    """Whole percent."""
    return f"{share:.0%}".replace("%", " %")


def plain_table() -> str:
    """The whole gradient in one call, nothing hidden."""
    values = sum(gradient.values for gradient in resnet50())
    rows = []
    for cards in ALL_CARDS:
        times = [form(values * width, cards) for form in (ring, two_level_ring, two_level_halving) for width in (2, 4)]
        rows.append((f"{cards:,}", *map(ms, times)))
    forms = ("ring", "two-level, ring", "two-level, halving")
    return table(("cards", *(f"{form}, {kind}" for form in forms for kind in ("fp16", "fp32"))), rows)


def weak_table() -> str:
    """256 images a card, fp32 gradients in buckets behind the backward pass."""
    gradients, step = resnet50(), compute(256)
    rows = []
    for cards in ALL_CARDS:
        late = [
            exposed(gradients, 4, step * BACKWARD_SHARE, cards, form)
            for form in (ring, two_level_ring, two_level_halving)
        ]
        ratios = [step / (step + late[0]), step / (step + late[2])]
        rows.append((f"{cards:,}", f"{cards * 256:,}", *map(ms, late), *map(percent, ratios)))
    head = ("cards", "batch", "ring: exposed ms", "two-level, ring", "two-level, halving")
    return table((*head, "ring: efficiency", "two-level, halving"), rows)


def strong_table() -> str:
    """The batch fixed at LARS's 32,768: less and less compute behind which to hide."""
    gradients = resnet50()
    rows = []
    for cards in (128, 256, 512, 1024, 2048, 4096):
        batch = LARS_BATCH // cards
        step = compute(batch)
        backward = step * BACKWARD_SHARE
        late = [
            exposed(gradients, 4, backward, cards, ring),
            exposed(gradients, 4, backward, cards, two_level_halving),
            exposed(gradients, 4, backward, cards, two_level_halving, SINGLE_TENSORS),
            sum(two_level_halving(4 * gradient.values, cards) for gradient in gradients),
        ]
        epoch = IMAGES // LARS_BATCH * (step + late[1])
        score = evaluation(cards)
        figures = (percent(step / (step + late[1])), f"{epoch:.2f}", percent(score / (score + epoch)))
        rows.append((f"{cards:,}", f"{batch}", ms(step), *map(ms, late[:2]), *figures, *map(ms, late[2:])))
    head = ("cards", "images a card", "compute ms", "ring: exposed ms", "halving: exposed ms", "efficiency", "epoch s")
    return table((*head, "evaluation's share", "a call a tensor: exposed ms", "… nothing hidden"), rows)


def doubt_table() -> str:
    """What the assumed links are worth: buckets, halving and fp32 as in `strong_table`, with worse ones."""
    gradients = resnet50()
    slow = LINKS._replace(node_latency=3 * LINKS.node_latency, network_latency=3 * LINKS.network_latency)
    cases = {
        "as above": LINKS,
        "latencies × 3": slow,
        "half the bandwidths": LINKS._replace(node=LINKS.node / 2, network=LINKS.network / 2),
        "both": slow._replace(node=LINKS.node / 2, network=LINKS.network / 2),
    }
    rows = []
    for case, links in cases.items():
        ratios = []
        for cards in (256, 512, 1024, 2048, 4096):
            step = compute(LARS_BATCH // cards)
            late = exposed(gradients, 4, step * BACKWARD_SHARE, cards, partial(two_level_halving, links=links))
            ratios.append(step / (step + late))
        rows.append((case, *map(percent, ratios)))
    return table(("efficiency at batch 32,768", "256 cards", "512", "1,024", "2,048", "4,096"), rows)


def measured_table() -> str:
    """The model beside what was published."""
    gradients = resnet50()
    rows = []
    for what, cards, batch, seconds in MEASURED:
        step = compute(batch)
        hidden = exposed(gradients, 4, step * BACKWARD_SHARE, cards, two_level_halving)
        plain = two_level_halving(4 * sum(gradient.values for gradient in gradients), cards)
        rows.append((what, f"{cards:,}", f"{batch}", ms(step), ms(step + hidden), ms(step + plain), ms(seconds)))
    return table(("run", "cards", "images a card", "compute ms", "all hidden", "none hidden", "measured"), rows)


def tables() -> list[str]:
    """All tables, in the page's order."""
    return [plain_table(), weak_table(), strong_table(), doubt_table(), measured_table()]


if __name__ == "__main__":
    print("\n\n".join(tables()))
