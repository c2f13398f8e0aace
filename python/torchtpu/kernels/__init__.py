"""Kernels: functions on JAX arrays, including Pallas kernels, as operators of the device.

    torchtpu.pallas ─ signatures.py, calls.py (what is called) ─ operators.py (as PyTorch's operators)
                    ─ store.py (known texts) ─ tracing.py, interpreter.py, derived.py (new texts, with JAX)
                    ─ lowering.py (into the graph)

A kernel's program is a StableHLO module. A graph holds its functions and a call of them: the row `torchtpu::call`.
JAX is imported when a call with new dtypes and shapes is traced. The text is kept beside the compiled programs.
"""
