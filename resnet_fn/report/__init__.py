"""The evaluation report: figures (NumPy), pictures (matplotlib), one HTML page, JSON and CSV."""
