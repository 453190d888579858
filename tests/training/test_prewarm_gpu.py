"""The thread that starts a GPU beside other work."""

from __future__ import annotations

import _thread
import threading

import torch

from oneof.training.device import prewarm_gpu


def test_a_cpu_needs_no_thread():
    assert prewarm_gpu(torch.device("cpu")) is None


def test_the_thread_can_be_waited_for_beside_one_of_native_code(monkeypatch):
    """A thread that native code started, such as autograd's, is in `threading.enumerate` and cannot be joined."""

    def no_driver(*shape, **settings):
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch, "zeros", no_driver)
    registered = threading.Event()
    released = threading.Event()

    def native():
        threading.current_thread()  # from here on `threading` knows of it
        registered.set()
        released.wait(60)

    _thread.start_new_thread(native, ())
    assert registered.wait(60)
    thread = prewarm_gpu(torch.device("cuda"))
    thread.join(60)
    released.set()
    assert not thread.is_alive()
