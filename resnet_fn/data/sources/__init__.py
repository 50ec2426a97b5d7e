"""Where samples come from: each kind of data set, its files, and whether they can be read."""
