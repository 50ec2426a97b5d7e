"""This room computes one update: loss, gradients, loss scale, optimizer, schedule, moving average, and their step."""
