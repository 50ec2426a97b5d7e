"""Measurements: everything compared runs side by side, interleaved, in one call."""
