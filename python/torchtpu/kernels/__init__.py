"""Kernels: functions for JAX's arrays, Pallas kernels among them, as operators of the device.

    torchtpu.pallas ─ signatures.py, calls.py (what is called) ─ operators.py (as PyTorch's operators)
                    ─ store.py (texts that are known) ─ tracing.py, interpreter.py, derived.py (by JAX, what is new)
                    ─ lowering.py (into the graph)

A kernel's program is a StableHLO module. A graph holds its functions and a call of them: the row `torchtpu::call`.
JAX is imported when a call for new shapes and dtypes is traced, and its text is kept beside compiled programs.
"""
