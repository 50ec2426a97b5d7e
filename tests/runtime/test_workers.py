"""A role that no launcher gives; numbers that float32 does not hold.

(Real workers: tests/run/test_loop.py.)
"""

import numpy as np

from resnet_fn.runtime.workers import Workers, exchange_numbers


def test_an_unknown_role_is_rejected_before_mindspore_starts(python):
    code = (
        "import sys; from resnet_fn.runtime import workers\n"
        "try: workers.join()\n"
        "finally: print('mindspore' in sys.modules)"
    )
    done = python("-c", code, code=1, MS_ROLE="MS_WORKR")
    line = "ValueError: MS_ROLE: 'MS_WORKR' is unknown; use one of MS_WORKER, MS_SCHED"
    assert (done.stdout, done.stderr.splitlines()[-1]) == ("False\n", line)


def test_integers_are_exchanged_exactly():
    """As float32, in which workers sum: each number is one rank's, and zero on the others."""
    numbers = np.array([0, 1, 2**24 - 1, 2**24 + 1, 2**31 + 3, 2**48 - 1])
    assert exchange_numbers(numbers, Workers()).tolist() == numbers.tolist()
