"""Everything that PyTorch tests of its own operators, modules and optimizers, on "tpu", against the CPU.

    cases.py       what there is to run: operator × dtype × direction × mode, each under a name like
                   "linalg.qr/float32/backward/strict"
    operators.py   the programs behind the cases of operators, from PyTorch's op_db and foreach_op_db
    jagged.py      those of operators on jagged tensors, from njt_op_db
    modules.py     those of modules, from module_db, and of optimizers, from optim_db
    refusals.py    operators with dtypes that the CPU has no kernel for
    places.py      where a program runs: the CPU, the CPU in double precision, the device
    judge.py       runs a case and says whether it passes, and why not
    ahead.py       asks a TPU's compiler instead, about the programs that a case is on a TPU
    device_generic.py  tests of PyTorch's machinery for testing devices, on this one
    exceptions.py  operators whose results are compared otherwise; failures that are expected
    workers.py     processes that survive a crash or a hang of one of them
    report.py      the summary and the page

`python -m tests.conformance --help` tells how to run it.
"""
