"""The tests. Each folder's docstring says what its tests need; `helpers.py` and `small_models.py` serve all of them."""
