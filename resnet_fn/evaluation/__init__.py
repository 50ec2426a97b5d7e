"""This package uses checkpoints: it computes scores, metrics and predictions, and exports files."""
