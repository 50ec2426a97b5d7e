"""This package holds the settings of a training run, and makes command-line flags from them."""
