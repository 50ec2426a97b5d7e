"""This package reads weight files of this and other projects, and converts them."""
