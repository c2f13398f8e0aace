"""Kernels of JAX for operators that they compute better on a TPU than the table's lowerings. They are imported from JAX
when they are traced.
"""
