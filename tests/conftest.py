"""For all tests."""

import signal

from hypothesis import settings

# Where tests run in the background of a shell, Ctrl-C is ignored, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time that a test takes says more about the machine than about the code.
settings.register_profile("gristmill", deadline=None)
settings.load_profile("gristmill")
