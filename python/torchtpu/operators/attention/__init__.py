"""Attention operators that are not a single row."""
