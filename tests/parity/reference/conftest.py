"""These tests are of what is written in torch: without it there is nothing to collect."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
