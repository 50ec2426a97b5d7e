"""Coming from PyTorch: names, weights, and the ladder that proves step by step that both compute the same."""
