"""From a data set to a worker's share of an update: order, augmentation, mixing, and the feeds."""
