"""What a run keeps on the disk: checkpoints that are whole or not there, and the run folder around them."""
