"""Random programs, with the three modes mixed in each. `make test-nightly` draws others than `make test`."""
