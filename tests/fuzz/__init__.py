"""Random programs that mix the three modes. `make test-nightly` draws other programs than `make test`."""
