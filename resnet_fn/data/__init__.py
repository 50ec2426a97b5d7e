"""The data room: everything from a data set to a worker's part of an update (order, augmentation, mixing, feeds)."""
