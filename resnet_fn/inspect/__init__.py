"""This package shows a checkpoint's parameters, and compares two checkpoints."""
