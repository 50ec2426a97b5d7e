"""Shared memory that is full or missing, in a mount namespace of its own."""

import os
import subprocess

import pytest

FULL = "mount -t tmpfs -o size=4k none /dev/shm; head -c 4096 /dev/zero > /dev/shm/full"
READ_ONLY = "mount -t tmpfs -o ro none /dev/shm"
INSIDE = ["unshare", "--mount", "sh", "-c"]


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("fault", [FULL, READ_ONLY])
def test_a_training_needs_no_shared_memory(fault, launcher):
    """Two workers, each of which does what one alone does."""
    if subprocess.run([*INSIDE, fault], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no mount namespaces here")
    inside = [*INSIDE, f'{fault}; exec "$@"', "sh"]
    output = launcher.finish("run", inside=inside, more=["--epochs", "1"])
    assert output.count("best top-1") == 1
    assert os.path.exists("run/checkpoints/step-00000011")
