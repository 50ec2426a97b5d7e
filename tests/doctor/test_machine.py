from resnet_fn.doctor import machine
from resnet_fn.runtime.workers import Workers


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch):
    told = machine.describe("CPU", 3, Workers(0, 2))
    assert (told["threads"], told["workers"]) == (3, 2)
    told["packages"] |= {"torch": "", "onnx": "1.2"}
    text = "\n".join(machine.lines(told))
    assert "not installed: torch (resnet_fn[torch])" in text
    assert "onnx 1.2" in text


def test_variables_of_mindspore_are_told_and_no_others(monkeypatch):
    monkeypatch.setenv("MS_NODE_TIMEOUT", "10")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    variables = machine.describe("Ascend", 0, Workers())["variables"]
    assert variables["MS_NODE_TIMEOUT"] == "10"
    assert "SECRET_TOKEN" not in variables
