"""Settings define an update (`Recipe`) or only how it is computed (`RunOptions`); flags are made from both."""
