"""Save a checkpoint in a child process that is killed (SIGKILL) before line k of the save, for
every k there is.

After each death: the newest checkpoint must verify and be the old or the new one, whole; then a
save must work again and leave nothing of the dead one. Prints JSON: how many lines, and how often
which was found. No MindSpore in here, so that forking is cheap and safe.
"""

import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np

from resnet_fn.checkpoint import folder as checkpoint
from resnet_fn.checkpoint import manifest, replace, run_folder, tensor_file
from resnet_fn.checkpoint.folder import write_checkpoint
from resnet_fn.checkpoint.replace import recover_interrupted_replace
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.runtime import disk

MODULES = (checkpoint, manifest, replace, run_folder, tensor_file, disk)
FILES = {module.__file__ for module in MODULES}


def arrays(value):
    return {
        "a": np.full((3, 4), value, np.float32),
        "b": np.float32(value).reshape(()),
        "c": np.arange(5000) + value,
    }


def save(run, update, value, same=0):
    """Save arrays of `value`, or, over a checkpoint of `same`, its arrays with another state."""
    write_checkpoint(
        run.checkpoint_path(update),
        arrays(same or value),
        arrays(-(same or value)),
        {"update": update, "best": None, "value": value},
        links=bool(same),
    )
    run.prune(update, keep_last=2)


def save_killed_before(line, run, same):
    """Save 30 as update 3 in a child process that dies before this line of the save; its exit
    code.
    """
    pid = os.fork()
    left = [line]
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def trace(frame, event, _):
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return trace

    sys.settrace(trace)
    threading.settrace(trace)  # the hashing threads too
    save(run, 3, 30, same)
    os._exit(0)


def prepare(folder, replacing):
    shutil.rmtree(folder, ignore_errors=True)
    run = RunFolder(folder)
    for update in (1, 2, 3) if replacing else (1, 2):
        save(run, update, update)
    return run


def main(folder):
    result = {}
    for kind, same in (("fresh", 0), ("replacing", 0), ("linking", 3)):
        replacing = kind != "fresh"
        counts = {"old": 0, "new": 0}
        line = 0
        while True:
            run = prepare(folder, replacing)
            code = save_killed_before(line, run, same)
            assert code in (0, -signal.SIGKILL), code
            recover_interrupted_replace(run.checkpoints)
            loaded = run.newest()
            value = loaded.state["value"]
            update = loaded.state["update"]
            new = (update, value) == (3, 30)
            assert new or (update, value) == ((3, 3) if replacing else (2, 2)), (
                line,
                update,
                value,
            )
            for name, array in arrays(same or value).items():
                assert np.array_equal(loaded.weights[name], array), (line, name)
            for kept in run.updates():
                checkpoint.load_checkpoint(run.checkpoint_path(kept))
            assert len(run.updates()) >= 2, line
            save(run, 3, 31)
            assert run.newest().state["value"] == 31
            left = {path.name for path in run.checkpoints.iterdir()}
            assert left == {"step-00000002", "step-00000003"}, (line, left)
            if code == 0:
                break
            counts["new" if new else "old"] += 1
            line += 1
        result[kind] = {"lines": line, **counts}
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
