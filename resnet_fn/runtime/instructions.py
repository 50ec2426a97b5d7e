"""This module chooses the instructions that oneDNN, MindSpore's library of CPU kernels, may use.

From MindSpore 2.9 on, oneDNN computes most convolutions by a slow reference kernel as soon as it
may use AVX-512. So `import resnet_fn` limits oneDNN to AVX2. A processor with AVX-512 units of full
width computes matrix products faster without the limit. There, a net whose convolutions can all be
products (models/convolution.py) trains without the limit. oneDNN reads the limit when it computes
for the first time, so the choice is made when the net is known and nothing was computed.
"""

import contextlib
import itertools
import os
from typing import NamedTuple

from resnet_fn.runtime import versions

VARIABLE = "ONEDNN_MAX_CPU_ISA"
# Nets that are faster without the limit, by family and model of the CPU. Measured with
# `scripts/benchmark step`; the doctor prints what to add for another CPU.
FASTER_UNLIMITED: dict[tuple[int, ...], frozenset[str]] = {
    # AMD Zen 5: ResNet-50 and ResNet-18 gain 25 and 12 %. ResNet-20 gains nothing, and ResNet-8
    # is 1.25 times slower. An Intel Xeon (6, 167) has no row: ResNet-50 and ResNet-18 are 1.22 and
    # 1.09 times as fast there, but need 1.08 times the memory, and more than 1.05 is too much.
    (26, 2): frozenset({"resnet18", "resnet50"}),
}
LIMIT = "AVX2"
NO_LIMIT = {"NOT SET", "ALL", "DEFAULT"}  # values that mean all instructions, in capitals
_BELOW_AVX512 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2")
# Child processes inherit the limit. This variable shows them that no user has typed it.
IS_DEFAULT = "RESNET_FN_DEFAULT_ISA"
STANDARD, PRODUCTS = "standard", "products"  # how a net's convolutions are computed


class Cpu(NamedTuple):
    """The numbers that name a processor's kind, or 0, whether it has AVX-512, and its name."""

    family: int
    model: int
    has_avx512: bool
    name: str = ""

    @property
    def kind(self) -> str:
        """Return the family and the model as text."""
        return f"CPU family {self.family} model {self.model}"


class Choice(NamedTuple):
    """How convolutions are computed, `STANDARD` or `PRODUCTS`, and the reason."""

    convolutions: str
    why: str


_may_choose = False  # see `allow_choice`
_made = Choice(STANDARD, "only trainings on a CPU choose")


def this_cpu() -> Cpu:
    """Return this machine's processor, as /proc/cpuinfo describes it."""
    values: dict[str, str] = {}
    with (
        contextlib.suppress(OSError),
        open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo,
    ):
        for line in itertools.takewhile(str.strip, cpuinfo):  # the first CPU's lines
            name, _, value = line.partition(":")
            values[name.strip()] = value.strip()
    numbers = [values.get(name, "") for name in ("cpu family", "model")]
    family, model = (int(number) if number.isdigit() else 0 for number in numbers)
    has_avx512 = "avx512f" in values.get("flags", "").split()
    return Cpu(family, model, has_avx512, values.get("model name", ""))


def needs_limit(cpu: Cpu) -> bool:
    """Return whether the installed MindSpore's convolutions are slow with all instructions."""
    return versions.at_least(2, 9) and cpu.has_avx512


def limit() -> None:
    """Limit oneDNN to AVX2 if its convolutions need it, unless the user has typed a limit."""
    if needs_limit(this_cpu()) and not typed_limit():
        os.environ[VARIABLE] = os.environ[IS_DEFAULT] = LIMIT


def typed_limit() -> str:
    """Return the limit that the user has typed, or ""."""
    value = os.environ.get(VARIABLE, "")
    return "" if value == os.environ.get(IS_DEFAULT) else value


def allow_choice() -> None:
    """Let this process choose all instructions.

    Only commands call this: a script may compute convolutions of its own after a training.
    """
    global _may_choose
    _may_choose = True


def choose(cpu: Cpu, net: str, typed: str = "", before: Choice | None = None) -> Choice:
    """Return how the convolutions of a net are computed on a processor.

    Args:
        cpu: the processor.
        net: name of one of this package's nets if all its convolutions can be products and it
            computes in float32 in a compiled step; otherwise "".
        typed: the limit that the user has typed.
        before: the choice of the run that this run resumes. Its reason is kept, too, so that a
            resumed run's checkpoints have the bytes of an unbroken run's. Products are kept only
            for a `net`, because all other convolutions are slow without the limit.
    """
    if typed:
        slow = needs_limit(cpu) and typed.upper() not in _BELOW_AVX512
        return Choice(PRODUCTS if slow and net else STANDARD, f"{VARIABLE} is {typed}")
    if before and (net or before.convolutions == STANDARD):
        return before
    if not needs_limit(cpu):
        return Choice(STANDARD, "oneDNN needs no limit here")
    if net in FASTER_UNLIMITED.get(cpu[:2], ()):
        return Choice(PRODUCTS, f"{net} is faster with AVX-512 on {cpu.kind}")
    return Choice(
        STANDARD, f"{net or 'this net'} is not known to be faster with AVX-512 on {cpu.kind}"
    )


def choose_for(net: str, before: Choice | None = None) -> Choice:
    """Choose for this process, before it computes anything. The arguments are as in `choose`."""
    global _made
    typed = typed_limit()
    if typed or _may_choose:
        _made = choose(this_cpu(), net, typed, before)
    elif before and before.convolutions == STANDARD:
        _made = before
    else:
        _made = Choice(STANDARD, "a script may compute other convolutions")
    if _made.convolutions == PRODUCTS and not typed:
        os.environ.pop(VARIABLE, None)
    return _made


def choice() -> Choice:
    """Return what `choose_for` has chosen."""
    return _made


def describe() -> str:
    """Return one line on what trainings choose on this machine, and why."""
    cpu = this_cpu()
    typed = typed_limit()
    nets = sorted(FASTER_UNLIMITED.get(cpu[:2], ()))
    if typed or not needs_limit(cpu):
        return choose(cpu, "", typed).why
    if not nets:
        return f"{LIMIT} for all nets: none is known to be faster with AVX-512 on {cpu.kind}"
    return f"all for {', '.join(nets)}, which are faster on {cpu.kind}; {LIMIT} for other nets"
