"""Layers as plain data: what they take and give, how they are set, how far apart two arrays are.

Needs NumPy only, but for `cells`, which records those of a MindSpore net.
"""
