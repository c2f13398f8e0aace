"""The tests. Each folder's docstring says what its tests need. All folders use `helpers.py` and `small_models.py`."""
