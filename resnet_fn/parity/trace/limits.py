"""The limits that recording and comparing share: what counts as rounding."""

ROUNDING_FACTOR = 4.0
"""A difference of up to so many times the reference's rounding is rounding, not a fault.

Two float32 implementations that add in different orders are about equally far from float64.
docs/parity.md#float64
"""

CEILING = 0.25 / ROUNDING_FACTOR
"""With more rounding than this, an error of a quarter of the array would pass. The verdict is
"undecided" instead. docs/parity.md#float64
"""

NEVER_BEYOND = 1e-6
"""A relative error up to this is never called "beyond rounding". docs/parity.md#tolerances"""

SIGMAS = 4.0
"""A single value may have so many times the root mean square error, in either net.

A ReLU input within rounding of 0 is a tie. float32 cannot decide on which side of 0 a tie lies, and
the side changes all gradients below. The reference runs again with every tie on the other side, to
measure how far the gradients change. docs/parity.md#ties
"""

ONLY_ROUNDING = 0.5
"""A small gradient is only rounding if its relative error against float64, or `SPREADS` times its
change under noise, is at least this. docs/parity.md#only-rounding
"""

SMALL_GRADIENT = 1e-4
"""A gradient is small if its norm is at most this fraction of the norm of all gradients.
docs/parity.md#only-rounding
"""

SPREADS = 4
"""An array's rounding is at least so many times its relative change under noise of one unit in the
last place. docs/parity.md#noise
"""

MOST_BY_NOISE = 0.05
"""The largest relative error that is allowed because of noise alone. docs/parity.md#noise"""

EXACT = 1e-5
"""The relative error of two sums of the same float32 numbers. docs/parity.md#tolerances"""

CHAOTIC_ERROR = 1e-5
"""If float32 and float64 are further apart after the updates, a second run under noise measures how
far float32 follows the training. docs/parity.md#drift
"""

REPEATS = 1e-5
"""What chance does so rarely is a fault: that a dropout repeats in all runs of its layer.
docs/parity.md#what-is-random
"""
