"""The parity ladder compares a net and its training step with PyTorch's, stage by stage."""

import importlib

# Public functions and their modules. A function is imported when it is first used, so that the
# rooms `trace`, `pair` and `compare` need neither PyTorch nor MindSpore.
_HOMES = {
    "compare_step": "replay",
    "assert_parity": "replay",
    "make_batches": "batches",
    "table": "show.table",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        known = ", ".join(_HOMES)
        raise AttributeError(
            f"module 'resnet_fn.parity' has no attribute {name!r}; it has: {known}"
        )
    return getattr(importlib.import_module(f"resnet_fn.parity.{_HOMES[name]}"), name)
