"""What a run stores on disk: checkpoints that are complete or absent, and the run folder around them."""
