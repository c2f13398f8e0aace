"""Attention: the forms that no single row of the table computes."""
