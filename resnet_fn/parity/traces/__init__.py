"""What one side recorded: batches, layers, a trace, its folder."""
