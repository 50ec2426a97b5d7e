"""What is done with a checkpoint: exact scores, metrics, predictions, exported files."""
