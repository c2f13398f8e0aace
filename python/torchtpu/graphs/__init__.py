"""Graphs of operators, from PyTorch's tracers to the plain tuples that the core takes.

tracing.py        make_fx and decompositions: from a call to a graph of the table's operators, without mutation
encoder.py        from a graph to plain tuples
sizes.py          an encoder that knows symbolic sizes; bounds.py: how large each of them can get
graph_encoder.py  the encoder of whole graphs: torch.compile, `torch.tpu.stablehlo` and `torchtpu.export` use it
memory.py         which values of a graph are views of which
decompose.py      what the core calls for an operator without a row
"""
