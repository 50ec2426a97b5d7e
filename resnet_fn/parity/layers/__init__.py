"""Layers as plain data: inputs, outputs, settings, and the difference between two arrays.

Needs NumPy only; `cells`, which records a MindSpore net's layers, needs MindSpore.
"""
