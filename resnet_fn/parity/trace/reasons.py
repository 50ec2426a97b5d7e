"""The reasons by which arrays pass or differ: the words of `Difference.why`.

docs/parity.md, "How a bound comes about", has where each applies.
"""

# A tolerance decides; without one, both arrays must be equal.
TOLERANCE, EQUAL = "tolerance", "equal"

# The rounding of the array itself:
MEASURED = "measured rounding"
FLOAT64 = "float64"  # the error of a layer's output against float64
MEDIAN = "median"  # of the stage's arrays

# The rounding of what a number is computed from:
FROM_OUTPUTS = "outputs"
FROM_GRADIENTS = "all gradients"
FROM_EARLIER = "earlier losses or outputs"
CANCELLATION = "cancellation of outputs"
UNIT = "unit of the weight"  # its last place, to which each update rounds
RANDOM_WALK = "random walk of weights"  # such units of several updates
KERNELS = "MindSpore's kernels"  # inaccurate ones, which have moved the port's array

# Another measure than the array's own norm:
PART_OF_STAGE = "only rounding: a part of the stage"
UNIT_OF_STAGE = "unit of the weight, as a part of the stage"
PART_OF_VALUE = "measured rounding, as a part of the value"
TIES = "ties"  # the array differs only where a tie is decided otherwise
UNITS = "units in the last place"  # of a table's numbers
STANDARD_ERRORS, CONSTANTS = "standard errors", "constants"  # of initial values

# Integers, after the number of those that are excused:
EXCUSED = "integers excused, which change by rounding"

# Nothing is allowed:
ZERO = "zero in the reference"
OTHER_SHAPE = "another shape"
