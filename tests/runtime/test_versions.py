"""Supported versions, and the message for every other."""

import os
import shlex
import subprocess
import sys

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import TruncatedNormal, initializer

from resnet_fn.config.packages import installed_version
from resnet_fn.runtime import process, versions
from resnet_fn.update.optimizer import momentum_sgd


@pytest.mark.parametrize(
    ("version", "later"),
    [("2.8.0", False), ("2.9.0", True), ("2.10.0", True), ("2.11.0rc1", True)],
)
def test_minor_version_10_is_later_than_9(version, later, monkeypatch):
    monkeypatch.setattr(versions, "installed_version", lambda _: version)
    assert versions.at_least(2, 9) == later


@pytest.mark.parametrize("version", ["2.6.0", "2.7.1", "2.11.0"])
def test_an_untested_version_prints_a_line(version, monkeypatch):
    assert versions.warning() == "" or installed_version("mindspore") not in versions.RUN_ON
    monkeypatch.setattr(versions, "installed_version", lambda _: version)
    assert versions.warning() == (
        f"warning: MindSpore {version} was never tried with this package (2.7.2, 2.8.0, 2.9.0, "
        "2.10.0 were); run python -m resnet_fn.doctor"
    )


@pytest.mark.parametrize(("rank", "lines"), [(None, 1), ("0", 1), ("1", 0)])
def test_the_warning_is_no_refusal_and_comes_once(rank, lines, python):
    code = (
        "from resnet_fn.runtime import process, versions\n"
        "versions.installed_version = lambda _: '2.11.0'\n"
        "process.start(threads=1); process.start(threads=1)\n"
        "print((__import__('mindspore').Tensor([1.0]) + 1).asnumpy())"
    )
    done = python("-c", code, without="RANK_ID", **({"RANK_ID": rank} if rank else {}))
    assert done.stdout == "[2.]\n"
    assert (
        done.stderr.count("warning: MindSpore 2.11.0 was never tried")
        == len(done.stderr.splitlines())
        == lines
    )


def test_an_editors_lock_is_no_source(monkeypatch, tmp_path):
    """A link from `.#NAME.py` to nowhere, as Emacs makes one."""
    (tmp_path / "runtime").mkdir()
    (tmp_path / "code.py").write_text("pass\n")
    monkeypatch.setattr(versions, "__file__", str(tmp_path / "runtime" / "versions.py"))
    before = versions.sources()
    (tmp_path / ".#code.py").symlink_to("me@machine.1234")
    assert versions.sources() == before


@pytest.mark.slow
@pytest.mark.release
def test_numpy_2_ends_mindspores_first_operation(python, tmp_path):
    """Why setup.cfg wants NumPy below 2, though MindSpore does not say so.

    Where this fails, the pin can go.
    """
    install = shlex.split("-m pip install -q --no-deps 'numpy>=2,<3' --target")
    subprocess.run([sys.executable, *install, str(tmp_path)], check=True)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = (
        "import numpy; print(numpy.__version__); import mindspore; "
        "print(mindspore.Tensor([1.0]) + 1)"
    )
    done = python("-c", code, code=1, PYTHONPATH=path)
    assert done.stdout.startswith("2.")
    assert "returned a result with an exception set" in done.stderr


def parameter(value, name):
    return Parameter(Tensor([value]), name=name)


@pytest.mark.usefixtures("device")
class TestTraps:
    """What docs/mindspore.md says was seen in every version.

    One that fails here is gone: the code may do without.
    """

    def test_apply_momentum_ignores_nesterov(self):
        weight, velocity = (parameter(value, f"trap.{value}") for value in (1.0, 0.0))
        apply = ops.ApplyMomentum(use_nesterov=True)
        for _ in range(2):
            apply(weight, velocity, Tensor(0.1), Tensor([1.0]), Tensor(0.9))
        # with Nesterov 1 - 0.19 - 0.271
        assert weight.asnumpy()[0] == pytest.approx(1 - 0.1 - 0.19)

    def test_mints_sgd_updates_nothing(self):
        weight = parameter(1.0, "trap.mint")
        mindspore.mint.optim.SGD([weight], lr=0.1)((Tensor([1.0]),))
        assert weight.asnumpy()[0] == 1

    def test_l2_loss_falls_short(self):
        values = np.random.default_rng(0).standard_normal(2_400_000, np.float32)
        exact = (values.astype(np.float64) ** 2).sum() / 2
        error = float(ops.L2Loss()(Tensor(values)).asnumpy()) / exact - 1
        assert error == pytest.approx(-2e-3, abs=1e-3)

    def test_compiled_functions_ignore_set_train_and_set_data(self):
        cell = nn.BatchNorm2d(1)
        offset = parameter(0.0, "trap.offset")
        cell.set_train(True)

        @mindspore.jit
        def both(x):
            return cell(x), x + offset

        x = Tensor(np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1))
        first = [tensor.asnumpy().tolist() for tensor in both(x)]
        cell.set_train(False)
        offset.set_data(Tensor([7.0]))
        assert [tensor.asnumpy().tolist() for tensor in both(x)] == first

    @pytest.mark.parametrize("returns", [False, True])
    def test_a_compiled_function_that_returns_nothing_drops_sgd(self, returns):
        weight = parameter(1.0, "trap.sgd")
        update = momentum_sgd([(weight, 0.0)], 0.9).update

        @mindspore.jit
        def step(gradient, rate):
            update((gradient,), rate)
            if returns:
                return rate

        step(Tensor([1.0]), Tensor(0.1))
        assert (weight.asnumpy()[0] != 1) == returns

    def test_truncated_normal_cuts_at_values_not_at_sigmas(self):
        drawn = initializer(TruncatedNormal(0.01), [100_000], mindspore.float32).init_data()
        assert np.abs(drawn.asnumpy()).max() > 3 * 0.01

    def test_save_checkpoint_leaves_mode_0400(self, tmp_path):
        mindspore.save_checkpoint([{"name": "a", "data": Tensor([1.0])}], str(tmp_path / "x.ckpt"))
        assert (tmp_path / "x.ckpt").stat().st_mode & 0o777 == 0o400

    def test_a_cell_that_fails_leaves_its_precision_on(self):
        net = nn.SequentialCell(nn.Dense(3, 4)).to_float(mindspore.float16)
        one = Tensor([1.0], mindspore.float32)

        def fails():
            try:
                net(Tensor(np.ones((2, 5), np.float32)))
            finally:
                assert ops.Neg()(one).dtype == mindspore.float16

        with pytest.raises(ValueError), process.ending_mixed_precision():
            fails()
        assert ops.Neg()(one).dtype == mindspore.float32
