"""Compare two recordings, stage by stage. Needs NumPy only."""
