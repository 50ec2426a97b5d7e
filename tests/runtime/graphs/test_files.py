"""Graphs in files: what is damaged or another's is not read, and the folder does not grow for ever."""

import os
import time

from resnet_fn.runtime.graphs import files as graph_files
from resnet_fn.runtime.graphs.files import prune, read_graph, write_graph


def test_a_graph_is_read_as_it_was_written_or_not_at_all(tmp_path):
    path, graph = tmp_path / "a.graph", bytes(range(256)) * 10 + b"\n"
    assert read_graph(path, "a") is None
    write_graph(path, "a", graph)
    assert os.listdir(tmp_path) == ["a.graph"]
    assert read_graph(path, "a") == graph
    assert read_graph(path, "b") is None  # another key's
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole + b"\0", graph, whole[:100] + bytes([whole[100] ^ 4]) + whole[101:]):
        path.write_bytes(damaged)
        assert read_graph(path, "a") is None
    write_graph(path, "a", b"new")
    assert read_graph(path, "a") == b"new"


def test_a_file_that_others_may_write_is_not_trusted(tmp_path):
    path = tmp_path / "a.graph"
    write_graph(path, "a", b"graph")
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    assert [read_graph(tmp_path / name, "a") for name in ("a.graph", "link", "fifo")] == [b"graph", None, None]
    path.chmod(0o620)
    assert read_graph(path, "a") is None


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_files, "LARGEST", 100)
    now = time.time()
    for name, size, age in (
        ("old", 40, 30),
        ("new", 40, 10),
        ("newest", 40, 1),
        (".tmp-1-a", 1, 5),
        (".tmp-2-b", 1, 1e5),
    ):
        (tmp_path / name).write_bytes(bytes(size))
        os.utime(tmp_path / name, (now - age, now - age))
    prune(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".tmp-1-a", "new", "newest"]
