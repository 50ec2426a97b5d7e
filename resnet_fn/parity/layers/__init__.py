"""Describe layers as plain data, and compare arrays. Only `cells` and `masked` need MindSpore."""
