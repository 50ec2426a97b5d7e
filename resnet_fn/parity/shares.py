"""Write the traces of several workers into one folder."""

from pathlib import Path

from resnet_fn.parity.trace.folder import MANIFEST, save_recording, write_manifest
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.runtime.disk import sha256_of_file
from resnet_fn.runtime.workers import Workers, barrier, gather_texts


def save_share(recorded: Recorded, folder: Path, layers: str, workers: Workers) -> int:
    """Write the recording of one worker, and return the size of its folder in bytes.

    Every worker calls this.
    """
    if workers.size == 1:
        return save_recording(recorded.trace, folder, layers, recorded.source)
    if (folder / MANIFEST).exists():
        raise ValueError(f"out: {folder} is not empty; give a new folder")
    own = folder / f"rank-{workers.rank}"
    size = save_recording(
        recorded.trace, own, layers if workers.is_main else "none", recorded.source
    )
    hashes = gather_texts(sha256_of_file(own / MANIFEST), workers)
    if workers.is_main:
        write_manifest(folder, {"ranks": hashes})
    barrier(workers)
    return size
