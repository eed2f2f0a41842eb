"""What is taken away when the run is over: before its process is asked to end, for then nobody waits long for it."""

import atexit
from contextlib import ExitStack

AT_THE_END = ExitStack()
atexit.register(AT_THE_END.close)
