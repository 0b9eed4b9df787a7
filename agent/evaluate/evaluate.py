"""The Python side of eval: what runs inside the target for one write to an `eval` file.

The agent executes the files of this folder (agent/interpreter/guest.c says in which order) in one private dict for each
interpreter, which holds `_probe` already: the part of this that is in C. It calls evaluate(), then restore(), under the
GIL on its own thread, or one that is held, and close() when it detaches. The program sees nothing of this: no module,
no hook, no patched name, but for sys.stdin, stdout and stderr while an evaluation lasts. A KeyboardInterrupt may come
at any step. """
EIO, EINVAL = 5, 22  # errno(3); who interrupted it makes EINTR of that
EVAL_AS_JSON = 16    # agent/wire/proto.h
running = {}         # thread -> the Units of the text that runs in it, so far
struck = set()       # the threads whose evaluation is to be interrupted (striking.py)


def evaluate(text, last, thread, depth, flags, output_max, held=None, before=0):
    """Runs what is complete of text (bytes), all of it if last.

    thread, depth, flags  as in struct proto_eval
    output_max     bytes of output that are kept
    held           where the thread that this runs in is held: a frame of its, or an exception; None: it is our own
    before         lines that came before these, of the same text: they count in tracebacks
    Returns (errno or 0, bytes of text that are done with, output, whether some of it was dropped,
    what failed in words). After an error nothing more of the text is run.
    """
    sink, me = Sink(output_max), get_ident()
    names, ran = None, []  # units, the last one last
    error, done, words = 0, 0, ""
    stage = EINVAL
    install()
    try:
        names = resolve(thread, depth, flags, held)
        where = thread if flags & ~EVAL_AS_JSON else _probe.main_thread
        how = show_tree if flags & EVAL_AS_JSON else show
        lines, sizes = split(text, last)
        for begin, end in units(lines, last):
            done = sum(sizes[:end])
            if begin == end:
                continue
            context, stage = Context(), EINVAL
            context.run(current.set, sink)
            unit = Unit("".join(lines[begin:end]), before + begin)
            ran.append(unit)
            context.run(unit.compile)
            stage = EIO
            running[me] = ran
            if me in struck:
                raise KeyboardInterrupt
            context.run(unit.run, names, sink, where, how)
    except Missing as missing:
        error, words = missing.args
    except BaseException as problem:
        error = stage
        words = summary(problem)
        roomy(report, problem, ran, sink)
        if isinstance(problem, KeyboardInterrupt):
            # one that left an exec() of a string makes CPython up to 3.13 end with SIGINT when
            # the program ends, unless another exec() follows (pythonrun.c,
            # unhandled_keyboard_interrupt)
            exec("", {})
    finally:
        sink.open = False
        running.pop(me, None)
        if names is not None:
            names.release()
    return error, done, bytes(sink.data), sink.cut, words


def close():
    """Lets go of the agent, also where somebody kept an object of ours."""
    global _probe
    restore()
    streams["evaluation"] = None
    _probe = None
    without_main.clear()
