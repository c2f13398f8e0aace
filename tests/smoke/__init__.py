"""One minute: the device exists, computes, trains, compiles, and reports errors. Needs the CPU plugin."""
