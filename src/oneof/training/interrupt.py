"""Ctrl-C during training: the step under way is finished first, so that what is saved is whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_deferred() -> Iterator[Callable[[], bool]]:
    """Defer the first Ctrl-C inside the block; the function that is yielded returns whether it came.

    The block is expected to look and to raise KeyboardInterrupt where it can stop; a Ctrl-C that it did not see is raised at its
    end. A second Ctrl-C interrupts at once. Python handles signals in the main thread alone, and a program may have a handler of
    its own: nothing is deferred in other threads or where Ctrl-C does not raise KeyboardInterrupt.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    interrupted = False

    def remember(signal_number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupted:
        raise KeyboardInterrupt
