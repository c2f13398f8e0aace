"""Kernels: functions on JAX arrays and Pallas kernels as operators. These tests need JAX."""
