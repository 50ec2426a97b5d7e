"""This package computes one update: loss, gradients, loss scale, optimizer, schedule, moving average, and the step."""
