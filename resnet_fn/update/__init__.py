"""This package computes one update of a net: loss, gradients, optimizer, learning rate and moving
average.
"""
