"""This package reads, recognises, renames and converts weight files of other projects."""
