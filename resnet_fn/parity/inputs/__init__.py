"""Compare how two sides prepare pictures, labels and samples for a net."""
