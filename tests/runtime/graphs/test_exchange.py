"""MindSpore's own cache is on while one function compiles, and nothing of it stays."""

import os
import subprocess
import sys
import time

import pytest

from resnet_fn.runtime import versions
from resnet_fn.runtime.graphs.exchange import Exchange
from resnet_fn.runtime.graphs.key import Ingredients

SWITCHES = ("MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH")


@pytest.mark.skipif(not versions.compile_cache_is_exact(), reason="kept in measured versions alone")
@pytest.mark.usefixtures("device")
def test_the_switches_are_put_back_whatever_happens_between(monkeypatch):
    monkeypatch.setattr(Exchange, "_number", Exchange._number)
    monkeypatch.setattr(Exchange, "_looks", Exchange._looks)
    exchange = Exchange("key", Ingredients(), None)
    exchange.lay_out()
    seen = []

    def compile_in_vain():
        seen.extend(name in os.environ for name in SWITCHES)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), exchange:
        compile_in_vain()
    assert seen == [True, True]
    assert [name in os.environ for name in SWITCHES] == [False, False]
    assert (exchange.offers, exchange.taken, exchange.written) == (False, False, b"")
    assert not Exchange("key", Ingredients(), b"a graph").offers  # MindSpore looks for no other one now


def test_folders_that_killed_processes_left_go_after_a_day_and_ones_own_at_the_end(tmp_path):
    for name, age in (("old", 2 * 86400), ("new", 100)):
        (tmp_path / f"resnet_fn-graphs-{name}" / "rank_0").mkdir(parents=True)
        os.utime(tmp_path / f"resnet_fn-graphs-{name}", (time.time() - age,) * 2)
    code = "from resnet_fn.runtime.graphs import exchange; print(exchange._work_folder().is_dir())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "True\n", done.stderr
    assert [name for name in os.listdir(tmp_path) if "graphs" in name] == ["resnet_fn-graphs-new"]
