"""What was recorded: plain data, and its folder on disk. Needs NumPy only."""
