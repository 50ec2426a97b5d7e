"""A package that is missing is one line with its command."""

import sys
from pathlib import Path

import pytest

from resnet_fn.runtime.extras import import_extra


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import google.missing_protobuf", "No module named"),
        ("raise ImportError('libmissing.so: cannot open')", "libmissing.so: cannot open"),
        ("from onnx import missing", "cannot import name 'missing'"),
    ],
)
def test_an_extra_that_cannot_be_imported_is_named(code, reason, monkeypatch, raises_line):
    Path("site/onnx").mkdir(parents=True)
    Path("site/onnx/__init__.py").write_text(code)
    monkeypatch.syspath_prepend("site")
    monkeypatch.delitem(sys.modules, "onnx", raising=False)
    with raises_line("--format onnx needs onnx, which cannot be imported", reason, ".[export]"):
        import_extra("onnx", "--format onnx")


def test_a_missing_package_has_its_command(monkeypatch, raises_line):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with raises_line("--format onnx needs onnx; run pip install '.[export]'"):
        import_extra("onnx", "--format onnx")
