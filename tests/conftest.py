"""What holds for every test."""

import os

# Triton decides when it is imported whether kernels run in its interpreter. Whichever test imports
# it first decides for the whole process, so all decide alike; workers choose for themselves.
os.environ["TRITON_INTERPRET"] = "1"

# Tests are small and run beside each other: threads of torch and BLAS would mostly wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
