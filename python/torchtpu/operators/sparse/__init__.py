"""Kernels for sparse tensors for which PyTorch's own kernels do not work.

`torchtpu.operators.layouts` calls them. Each is a short function of the dense tensors inside, which are on the device,
so everything is computed there. `coo.py` has the kernels of COO tensors, `compressed.py` those of CSR, CSC, BSR and
BSC. A size that depends on data is read once.
"""
