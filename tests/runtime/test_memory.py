"""How much memory this process can have: the machine's, or what its cgroup allows."""

import sys

import pytest

from resnet_fn.runtime.memory import machine_memory


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, 2048 * 1024),
        ("0::/a", {"memory.max": "max", "a/memory.max": "1048576"}, 2**20),
        ("0::/docker/1f", {"memory.max": "1048576"}, 2**20),  # the host's path, which is not here
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "4096"}, 4096),
        ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 2048 * 1024),
    ],
)
def test_a_cgroup_limits_the_machines_memory(groups, files, expected, write_cgroups):
    root = write_cgroups(groups, files)
    (root / "proc/meminfo").write_text("MemTotal:  2048 kB\nMemFree: 7 kB\n")
    assert machine_memory(root) == expected


def test_memory_that_is_not_known_is_no_limit(tmp_path):
    assert machine_memory(tmp_path) == sys.maxsize
