# What a thread of the target runs at the interpreter's next safe point (PEP 768), in a namespace of
# its own. A first line, which the daemon writes, sets `directory`, where load.py lies.
#
# The less of it the better: if a signal handler of the program raises on the main thread just now,
# that exception ends here, and the program never sees it. On the new thread no handler runs, no
# trace function looks, and neither recursion nor the C stack is nearly used up.
import _thread
import posix


def run():
    try:
        fd = posix.open(directory + "/load.py", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return  # the daemon has given up
    text = posix.read(fd, 1 << 16)
    posix.close(fd)
    exec(text, {"directory": directory})


try:
    _thread.start_new_thread(run, ())
except KeyboardInterrupt:
    # a Ctrl-C that came just now is the program's
    import _signal
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _thread.interrupt_main()
except RuntimeError as error:
    fd = posix.open(directory + "/reply", posix.O_WRONLY | posix.O_CLOEXEC)
    posix.write(fd, f"{error}\n".encode())
    posix.close(fd)
