# What the new thread (script.py) runs, in a namespace of its own. It holds `directory`, and
# first lines that the daemon writes set:
#   fresh       the library there
#   old         the path by which the same library was loaded earlier, or None
#
# Only what every interpreter has loaded from its start is imported, so that sys.modules stays as it
# is.
import _frozen_importlib
import _imp
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


def remove():
    # the daemon does so too, unless it has died
    for name in "script.py", "load.py", "reply", fresh[len(directory) + 1:]:
        try:
            posix.unlink(f"{directory}/{name}")
        except OSError:
            pass
    try:
        posix.rmdir(directory)
    except OSError:
        pass


def run():
    """Loads it; the words for the daemon, None where nobody waits for them."""
    if not wanted():
        return None
    try:
        return load_any()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


try:
    reply = posix.open(directory + "/reply", posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        said = run()
        remove()
        if said is not None:
            said = f"{_thread.get_native_id()} {said}".encode(errors="backslashreplace")
            posix.write(reply, said[:4000].replace(b"\n", b" ") + b"\n")
    finally:
        posix.close(reply)
except OSError:
    remove()  # the daemon has given up, and begun to remove the files itself
