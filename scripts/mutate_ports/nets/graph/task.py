"""Graphs with up to seven nodes: features, edges, a mask; a number for each graph."""

import numpy as np

SETTINGS = {"learning_rate": 0.02}


def batch(rng):
    return _graphs(rng, 5, 7)


def other(rng):
    return _graphs(rng, int(rng.integers(1, 6)), int(rng.integers(4, 9)))


def _graphs(rng, count, nodes):
    sizes = rng.integers(3, nodes + 1, count)
    mask = np.arange(nodes) < sizes[:, None]
    edges = (rng.random((count, nodes, nodes)) < 0.4) & mask[:, :, None] & mask[:, None]
    features = (rng.normal(size=(count, nodes, 6)) * mask[..., None]).astype("float32")
    inputs = {"features": features, "edges": edges.astype("float32"), "mask": mask}
    return inputs, rng.normal(size=(count, 1)).astype("float32")
