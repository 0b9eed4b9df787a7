"""Keeps `threading` right about the agent's thread, which it did not start.

Executed by the library in a namespace of its own, in each interpreter that code is run in."""
import sys
import _thread


def forget():
    """After code that asked for current_thread(): threading made up a Thread for ours."""
    threading = sys.modules.get("threading")
    if not hasattr(threading, "_active") or not hasattr(threading, "_DummyThread"):
        return  # None, or just being imported
    mine = threading._active.get(_thread.get_ident())
    if type(mine) is threading._DummyThread:
        del threading._active[_thread.get_ident()]


def main_ident():
    """The main thread's identifier; 0 where it can't be known."""
    threading = sys.modules.get("threading") or _import_threading()
    main = getattr(threading, "_main_thread", None)  # not there, or not yet: it is being imported
    return main.ident if main else _find_main() or 0


def _native_id(ident):
    """The kernel's number of a thread, after which its clock is named (CPUCLOCK_PID in the kernel's
    posix-timers_types.h)."""
    import time
    return ~(time.pthread_getcpuclockid(ident) >> 3)


def _find_main():
    """The identifier of the main thread; before 3.13 it is known only if it runs Python, and is the
    process's first one."""
    import os
    if sys.version_info >= (3, 13):
        return _thread._get_main_thread_ident()
    if not _probe.frames_are_safe():
        return None
    for ident in sys._current_frames():
        if _native_id(ident) == os.getpid():
            return ident
    return None


def _import_threading():
    """The thread that imports threading first is taken for the main thread: up to 3.12 in all, then in its
    native_id. Code that is run here may well be the first to do so: therefore it is imported beforehand,
    set right, and shown to the program only then."""
    import _frozen_importlib as bootstrap
    main = _find_main()
    if main is None:
        return None
    try:
        spec = bootstrap._find_spec("threading", None)
        module = bootstrap.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception:  # no file of Python's can be found, or builtins are gone: nobody can import it now
        return None
    thread = module._main_thread
    del module._active[thread._ident]
    thread._ident, thread._native_id = main, _native_id(main)
    module._active[main] = thread
    if sys.version_info < (3, 13):
        _thread._set_sentinel()  # our end is not the main thread's
    return sys.modules.setdefault("threading", module)
