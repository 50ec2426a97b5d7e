"""These functions replace a checkpoint's folder, and put the old folder back if the process died
meanwhile.

Beside the folder step-00000010, other folders exist for a short time:
    - step-00000010.tmp-<pid>-<random>: a new checkpoint, until it is complete; or an old one that
      is being removed.
    - step-00000010.replaced-<pid>-<random>: the old checkpoint, until the new one has its name.
"""

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path

_UNIQUE = r"\d+-[0-9a-f]{8}"  # see `temporary_name`
_REPLACED = re.compile(rf"(step-\d{{8}})\.replaced-{_UNIQUE}")
# The last two endings are those of earlier versions.
_LEFT = re.compile(rf"step-\d{{8}}(\.replaced-{_UNIQUE})?\.tmp-({_UNIQUE}|\d+|pruned)")


def temporary_name(folder: Path, kind: str = "tmp") -> Path:
    """Return a path beside `folder` that no other program uses."""
    # The name also has a random part: on a shared disk two machines may have equal process numbers.
    return folder.with_name(f"{folder.name}.{kind}-{os.getpid()}-{secrets.token_hex(4)}")


def remove_folder(folder: Path) -> None:
    """Remove a folder, so that a process that dies meanwhile leaves nothing under its name.

    Of a link, the folder to which it leads stays.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    removed = temporary_name(folder)
    folder.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def replace_folder(folder: Path, new: Path) -> None:
    """Rename the folder `new` to `folder`, and remove the folder that had this name."""
    # rename() cannot replace a folder that contains files. If the process dies between the two
    # renames, `recover_interrupted_replace` puts the old folder back.
    old = temporary_name(folder, "replaced") if folder.exists() else None
    if old:
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        if old:
            old.rename(folder)
        raise
    if old:
        # The new folder has its name, so the save has not failed. The next process with this run
        # removes what stays.
        with contextlib.suppress(OSError):
            remove_folder(old)


def recover_interrupted_replace(checkpoints: Path) -> None:
    """Put a checkpoint `step-NNNNNNNN` back if a process died while it replaced the checkpoint."""
    for path in sorted(checkpoints.iterdir()):
        if match := _REPLACED.fullmatch(path.name):
            folder = checkpoints / match[1]
            if folder.exists():
                remove_folder(path)  # otherwise it would come back after `folder` was removed
            else:
                path.rename(folder)


def remove_leftovers(checkpoints: Path) -> None:
    """Remove what processes left in a folder of checkpoints when they died."""
    for path in checkpoints.iterdir():
        if _LEFT.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
