"""Show the ladder: a table, a page, and JSON."""
