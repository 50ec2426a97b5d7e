"""A run stores checkpoints in its run folder; each checkpoint is either complete or absent."""
