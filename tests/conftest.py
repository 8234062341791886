"""For all tests."""

import os
import signal

from hypothesis import settings

# Where tests run in the background of a shell, Ctrl-C is ignored, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time that a test takes says more about the machine than about the code.
settings.register_profile("gristmill", deadline=None)
settings.load_profile("gristmill")

# pytest loads readline, which sets the width of a terminal in the environment of the process, behind os.environ: what
# tests start would see it, and processes of pytest-xdist do.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)

# Threads of OpenMP (torch) and OpenBLAS (numpy) sleep while they wait. By default they spin: where more of them run
# than there are cores, as beside another test, small models and matrices take two to four times as much of the CPU.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the least: 2 to the power of 4 cycles

# Runs of the tests are not added to the user's profile store.
os.environ["GRISTMILL_PROFILE_STORE"] = "off"
