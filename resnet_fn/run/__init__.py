"""The training loop, what it is built from, and what stops it."""
