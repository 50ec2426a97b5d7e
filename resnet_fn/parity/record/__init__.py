"""Record what a net computes, in either framework."""
