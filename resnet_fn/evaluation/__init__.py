"""From a checkpoint to answers: exact scores, metrics, predictions, exported files."""
