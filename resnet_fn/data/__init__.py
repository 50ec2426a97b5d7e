"""This package turns a data set into each worker's batches: order, augmentation, mixing, feeds."""
