"""Compare one net with itself, computed in two ways: the command `parity self`."""
