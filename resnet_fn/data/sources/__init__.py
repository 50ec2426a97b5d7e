"""This package reads each kind of data set, and checks whether its files can be read."""
