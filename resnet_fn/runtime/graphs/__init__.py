"""Graphs of compiled functions that are kept for the next process."""
