"""Data: what the sets hold (sources), how images vary (augment), which samples an update sees (pipeline)."""
