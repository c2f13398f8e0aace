"""What other libraries need to use the device, one module for each. None is imported by itself."""
