"""Set-up compiles the kernels while most packages are still on their way."""

import subprocess
import sys

LATER = ("cryptography", "google", "grpc", "hdrh", "prometheus_client", "pyarrow", "pydantic", "typer")


def test_kernels_are_compiled_with_numba_and_numpy_alone():
    missing = f"import sys; sys.modules.update(dict.fromkeys({LATER}))"
    every = "from cluster.log.warm import MODULES, importlib; list(map(importlib.import_module, MODULES))"
    run = subprocess.run(
        [sys.executable, "-c", f"{missing}; {every}"], capture_output=True, text=True, timeout=100
    )

    assert run.returncode == 0, run.stderr[-2000:]
