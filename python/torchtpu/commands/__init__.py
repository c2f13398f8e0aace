"""The commands of `python -m torchtpu`: a module each, with `add_to` for its arguments and `run`."""
