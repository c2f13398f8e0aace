"""The Rust engine: cache, devices, memory, errors, views, order of execution. Some start processes of their own."""
