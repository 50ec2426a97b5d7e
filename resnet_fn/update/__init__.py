"""One update: loss, gradients, loss scale, optimizer, schedule, moving average, and the step that joins them."""
