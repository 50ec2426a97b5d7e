"""The compile cache: graphs of compiled functions that are kept for the next process."""
