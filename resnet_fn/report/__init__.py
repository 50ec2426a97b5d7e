"""This package writes the report of an evaluation, with metrics, plots, pictures and a table of
predictions.
"""
