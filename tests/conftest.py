"""What holds for every test."""

import os

# Triton decides when it is imported whether kernels run in its interpreter. Whichever test imports
# it first decides for the whole process, so all decide alike; workers choose for themselves.
os.environ["TRITON_INTERPRET"] = "1"
