"""This package loads each kind of data set and checks image files."""
