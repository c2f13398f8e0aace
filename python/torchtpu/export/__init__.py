"""`torch.export` programs as StableHLO, for JAX, XLA and other users.

    program = torch.export.export(model, (x,))
    exported = torchtpu.export.to_stablehlo(program)
    exported.text        # a module whose @main takes x and returns the results

No device is needed: the program may have been exported on any device. A saved program is served without the model's
code:

    exported.save("model.pt")
    serve = torchtpu.export.load("model.pt")
    (result,) = serve(x.to("tpu"))

Sizes may change up to a bound, `dynamic_shapes={"x": {0: torch.export.Dim("batch", max=64)}}`. The module then takes
and returns tensors at their capacity, and takes the sizes as numbers. `load` pads inputs and slices results.
"""

from torchtpu.export.lower import to_stablehlo
from torchtpu.export.serve import Program, load
from torchtpu.export.stablehlo import Multiple, Number, Spec, StableHLO, Symbol

__all__ = ["Multiple", "Number", "Program", "Spec", "StableHLO", "Symbol", "load", "to_stablehlo"]
