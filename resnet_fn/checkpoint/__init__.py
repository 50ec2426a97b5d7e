"""A run stores checkpoints, which are complete or absent, in a run folder."""
