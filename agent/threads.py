"""Keeps `threading` right about the agent's thread, which it did not start.

Executed by the library in a namespace of its own, in each interpreter that code is run in."""
import sys
import _thread


def forget():
    """After code that asked for current_thread(): threading made up a Thread for ours."""
    threading = sys.modules.get("threading")
    if threading is None:
        return
    mine = threading._active.get(_thread.get_ident())
    if type(mine) is threading._DummyThread:
        del threading._active[_thread.get_ident()]


def main_ident():
    """The main thread's identifier; 0 where it can't be known."""
    if sys.version_info >= (3, 13):
        return _thread._get_main_thread_ident()
    threading = sys.modules.get("threading") or _import_threading()
    return threading.main_thread().ident if threading else 0


def _find_main():
    """The identifier of the process's first thread, if it runs Python. The clock of a thread is
    named after the kernel's number for it (clock_getcpuclockid in the kernel's posix-timers.h)."""
    import os
    import time
    for ident in sys._current_frames():
        if ~(time.pthread_getcpuclockid(ident) >> 3) == os.getpid():
            return ident
    return None


def _import_threading():
    """The thread that imports threading first is the main thread to it (3.12 and before). Code that is
    run here may well be the first to do so: therefore it is imported beforehand, set right, and shown to
    the program only then."""
    import _frozen_importlib as bootstrap
    import os
    main = _find_main()
    if main is None:
        return None
    spec = bootstrap._find_spec("threading", None)
    module = bootstrap.module_from_spec(spec)
    spec.loader.exec_module(module)
    thread = module._main_thread
    del module._active[thread._ident]
    thread._ident, thread._native_id = main, os.getpid()
    module._active[main] = thread
    _thread._set_sentinel()  # our end is not the main thread's
    return sys.modules.setdefault("threading", module)
