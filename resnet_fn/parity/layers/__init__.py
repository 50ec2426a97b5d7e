"""Describe layers as plain data (inputs, outputs and settings), and compare arrays.

Needs NumPy only, except for `cells` and `masked`, which need MindSpore.
"""
