"""This package turns a data set into training batches for each worker."""
