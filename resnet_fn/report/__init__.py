"""This package writes an evaluation's report: metrics, plots, pictures, a table of predictions."""
