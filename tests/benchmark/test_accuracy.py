"""When a growing log has an evaluation at the target."""

from pathlib import Path

from resnet_fn.benchmark.accuracy import reached


def test_an_evaluation_counts_once_its_line_is_whole():
    log = Path("metrics.jsonl")
    assert not reached(log, 0.5)
    log.write_text('{"event": "train", "update": 1, "top1": 0.99}\n{"event": "eval", "top1": 0.4}\n')
    assert reached(log, 0.4)
    assert not reached(log, 0.5)
    log.write_text(log.read_text() + '{"event": "eval", "top1": 0.9')
    assert not reached(log, 0.5)
    log.write_text(log.read_text() + "8}\n")
    assert reached(log, 0.98)
    assert not reached(log, 0.981)
