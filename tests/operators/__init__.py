"""What the rows of the operator table compute, against the CPU. Needs the CPU plugin."""
