"""This package computes scores, metrics and predictions of a trained net, and exports the net."""
