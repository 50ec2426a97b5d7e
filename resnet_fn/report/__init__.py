"""An evaluation as a page: its numbers, plots and files."""
