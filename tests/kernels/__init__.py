"""Kernels: functions for JAX's arrays and Pallas kernels as operators. These tests need JAX."""
