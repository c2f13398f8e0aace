"""Kernels that come with JAX, for operators that have a better form on a TPU than the table's. They are imported from
JAX when they are traced.
"""
