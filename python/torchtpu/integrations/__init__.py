"""Support for other libraries, one module for each. The user imports the module; torchtpu does not."""
