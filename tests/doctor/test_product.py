"""How much faster products are with AVX-512, and the lines of the doctor about it."""

import pytest

from resnet_fn.doctor import machine, product
from resnet_fn.runtime import instructions


@pytest.mark.slow
@pytest.mark.alone
def test_a_product_is_slower_with_narrower_instructions():
    equal = product.speedup(instructions.VARIABLE, "ALL")
    assert 0.5 < equal < 2  # the same instructions on both sides
    slow = product.speedup(instructions.VARIABLE, "SSE41")
    assert slow > 1.5 * equal  # AVX2 and AVX-512 have twice the width and more


def test_without_mindspore_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(product.importlib.util, "find_spec", lambda _: None)
    assert product.speedup(instructions.VARIABLE, "AVX2") == 0.0


def test_an_unknown_wide_processor_gets_its_row():
    def lines(family=6, model=999, width="full", speedup=1.9):
        cpu = {"family": family, "model": model, "width": width, "avx512_speedup": speedup}
        return machine.lines_of_cpu({**cpu, "instructions": "AVX2 for all nets"})

    kind, chosen, *more = lines()
    assert kind == (
        "cpu        family 6 model 999, AVX-512 of full width: a product is 1.9 x as fast"
    )
    assert chosen == "kernels    AVX2 for all nets"
    assert "--against ours_all" in more[0]
    assert "(6, 999): frozenset(" in more[-1]
    half = lines(width="half", speedup=1.05)
    assert len(half) == 2
    assert "AVX-512 of half width" in half[0]
    assert len(lines(family=26, model=2)) == 2  # is in the table
    assert "no AVX-512" in lines(width="absent", speedup=0.0)[0]


@pytest.mark.parametrize(
    ("has_avx512", "speedup", "width"),
    [(True, 1.9, "full"), (True, 1.05, "half"), (True, 0.0, "unknown"), (False, 1.9, "absent")],
)
def test_the_gain_of_a_product_is_the_width(has_avx512, speedup, width, monkeypatch):
    monkeypatch.setattr(instructions, "this_cpu", lambda: instructions.Cpu(6, 999, has_avx512))
    monkeypatch.setattr(machine, "speedup", lambda *_: speedup)
    cpu = machine.describe_cpu()
    assert cpu["width"] == width
    assert cpu["avx512_speedup"] == (speedup if has_avx512 else 0.0)
