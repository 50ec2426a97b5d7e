"""Record what a net computes, in either framework.

`record.record` makes a trace with the methods of a side (`side.Side`): `torch_side.TorchSide` for
the reference, `mindspore_side.MindSporeSide` for the port. For the updates, a side makes a stepper
(`torch_step`, `mindspore_step`), with which `updates.record_run` fills a `Run`: the reference in
`torch_reference_runs`, the port in `mindspore_updates`. The reference is then run again in float64,
under noise and with other decisions, from which `rounding` computes how far rounding moves each
array.
"""
