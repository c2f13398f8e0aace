"""PyTorch's own test files as a judge from outside: `make judge`.

    __main__.py    the command
    source.py      brings PyTorch's test folder into a cache
    suites.py      what is judged: files, and the environment of each device
    distributed.py the files of torch.distributed, and what its tests need
    harness.py     what the tests need of a harness that is newer than they are
    imports.py     changes modules of the harness when they are imported
    files.py       runs a file in child processes, which may crash or hang
    child.py       the child: pytest, with a journal of what starts and ends
    alone.py       runs files on "tpu" alone, for the judges that are no tests of PyTorch
    report.py      the comparison, as text and as a page
    known.toml     tests that pass on the CPU and not on "tpu", with reasons

The tests are of PyTorch 2.6 and run with the installed torch. Each file runs on the CPU, where torchtpu is not
loaded, and on "tpu", where PyTorch's harness takes "tpu" as the device. Only tests that pass on the CPU count.
"""
