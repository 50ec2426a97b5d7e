"""The commands of the ladder: their flags, and what they print."""
