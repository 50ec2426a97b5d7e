"""Pair the parameters, layers and dropouts of two nets."""
