"""The rows of the table, compared with the CPU. Needs the CPU plugin."""
