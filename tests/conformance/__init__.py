"""PyTorch's tests of its operators, modules and optimizers, run on "tpu" and compared with the CPU.

    cases.py       the cases: operator × dtype × direction × mode, each with a name like
                   "linalg.qr/float32/backward/strict"
    operators.py   the programs of cases of operators, from PyTorch's op_db and foreach_op_db
    jagged.py      those of operators on jagged tensors, from njt_op_db
    modules.py     those of modules, from module_db, and of optimizers, from optim_db
    refusals.py    operators with dtypes that the CPU has no kernel for
    mixed.py       operators with one tensor of another dtype than the rest
    places.py      where a program runs: the CPU, the CPU in double precision, the device
    judge.py       runs a case and reports whether it passes, and why not
    ahead.py       compiles the programs of a case with a TPU's compiler instead
    device_generic.py  tests of PyTorch's machinery for testing devices, on this one
    exceptions.py  operators whose results are compared in another way; expected failures
    workers.py     processes that survive a crash or a hang of one of them
    report.py      the summary and the page

`python -m tests.conformance --help` shows how to run it.
"""
