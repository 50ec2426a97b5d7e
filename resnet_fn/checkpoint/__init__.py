"""This package writes and reads checkpoints, and the run folders that contain them."""
