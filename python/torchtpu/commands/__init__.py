"""The commands of `python -m torchtpu`: one module each, with `add_to` for its arguments and `run`."""
