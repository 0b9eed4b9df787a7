# What a thread of the target runs on behalf of remote_exec.c (PEP 768), in a namespace of its own.
# Its first lines, which the daemon writes, set:
#   directory   the private directory that this text came from
#   fresh       the library in it
#   old         the path by which the same library was loaded earlier, or None
#
# The work is done on a thread of its own: there no signal handler of the program can raise into it,
# no trace function sees it, and neither recursion nor the C stack is nearly used up. Only what
# every interpreter has loaded from its start is imported, so that sys.modules stays as it is.
import _frozen_importlib
import _imp
import _signal
import _thread
import posix


def wanted():
    # the daemon holds a lock for as long as it waits: with kill -9 it is gone
    fd = posix.open(fresh, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        posix.lockf(fd, posix.F_TEST, 0)
    except OSError:
        return True
    finally:
        posix.close(fd)
    return False


def load(path):
    # made and dropped: nothing gets into sys.modules
    spec = _frozen_importlib.ModuleSpec("probing", None, origin=path)
    _imp.create_dynamic(spec)._start_by_script()


def load_any():
    if old is not None:
        try:
            # found by its name among the libraries that are loaded, where the loader does so
            load(old)
            return "loaded old"
        except ImportError:
            pass
    load(fresh)
    return "loaded fresh"


def reply(words):
    fd = posix.open(directory + "/reply", posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        posix.write(fd, words.encode(errors="backslashreplace")[:4000] + b"\n")
    finally:
        posix.close(fd)


def remove():
    # the daemon does so too, unless it has died
    for name in "script.py", "reply", fresh[len(directory) + 1:]:
        try:
            posix.unlink(f"{directory}/{name}")
        except OSError:
            pass
    try:
        posix.rmdir(directory)
    except OSError:
        pass


def run():
    try:
        if wanted():
            try:
                words = load_any()
            except BaseException as error:
                words = f"{type(error).__name__}: {error}"
            reply(words)
    except OSError:
        pass  # the daemon gave up meanwhile and removed the files
    finally:
        remove()


try:
    _thread.start_new_thread(run, ())
except KeyboardInterrupt:
    # a Ctrl-C that came just now is the program's
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _thread.interrupt_main()
except RuntimeError as error:
    reply(f"{type(error).__name__}: {error}")
    remove()
