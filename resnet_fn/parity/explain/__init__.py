"""Explain a difference: causes that are computed, and causes that are searched for."""
