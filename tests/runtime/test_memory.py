"""How much memory this process can have: the machine's, or what its cgroup allows."""

import psutil
import pytest

from resnet_fn.runtime.memory import machine_memory

ALL = psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, ALL),
        ("0::/a", {"memory.max": "max", "a/memory.max": "1048576"}, 2**20),
        ("0::/docker/1f", {"memory.max": "1048576"}, 2**20),  # the host's path, which is not here
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "4096"}, 4096),
        ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, ALL),
    ],
)
def test_a_cgroup_limits_the_machines_memory(groups, files, expected, write_cgroups):
    assert machine_memory(write_cgroups(groups, files)) == expected
