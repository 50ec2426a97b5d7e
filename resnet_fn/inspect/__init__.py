"""This package shows a checkpoint's arrays, activations and gradients."""
