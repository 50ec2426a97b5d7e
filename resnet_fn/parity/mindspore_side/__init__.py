"""MindSpore's side of the ladder: the functions that training calls."""
