"""Which names evaluated code sees: the program's globals and the variables of its frames."""
import sys

ENOENT, ESRCH, EOPNOTSUPP = 2, 3, 95  # errno(3)
EVAL_ON_THREAD, EVAL_IN_FRAME, EVAL_IN_CRASH = 2, 4, 8  # agent/wire/proto.h
CO_OPTIMIZED = 0x1                    # Include/cpython/code.h: a function's
WRITE_THROUGH = sys.version_info >= (3, 13)  # frame.f_locals is no copy (PEP 667)
FRAMES_MAX = 1 << 14                  # frames of a thread that are searched
OWN_FILES = "<probefs "               # AGENT_FILES of agent/wire/proto.h: how our files' names begin
ENTRIES = {"<probefs evaluate>", "<probefs watching>", "<probefs condition>"}  # AGENT_ENTRIES of it
DISPLAY = "<display>"  # the function that shows a value; no identifier, so nobody's own name


def variables(frame):
    """The names of a function's own variables, its cells and free variables."""
    code = frame.f_code
    return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}


class Names:
    """The local namespace of evaluated code: the variables of frames, then the globals `home`.

    own    the frame whose variables come first and take assignments; None: there is none
    outer  the frame from which on outwards names are looked up that home doesn't have
    stop   what else there is where a thread is held: __return__, __exception__
    kept   how many objects of ours refer to `own` besides this one
    """

    def __init__(self, home, own, outer, stop=None, kept=0):
        self.home, self.own, self.outer, self.stop, self.kept = home, own, outer, stop or {}, kept
        self.display = None
        self.touched = []  # frames of which CPython up to 3.12 made a dict of locals for us

    def locals(self, frame):
        if not WRITE_THROUGH and frame.f_code.co_flags & CO_OPTIMIZED:
            self.touched.append(frame)
        return frame.f_locals

    def variable(self, frame, name):
        if not WRITE_THROUGH and frame.f_code.co_flags & CO_OPTIMIZED:
            if name not in variables(frame):
                raise KeyError(name)
        return self.locals(frame)[name]

    def owns(self, name):
        """Whether assigning to it changes a variable of the frame."""
        frame = self.own
        if frame is None:
            return False
        if not frame.f_code.co_flags & CO_OPTIMIZED:
            return frame.f_locals is not self.home
        return name in variables(frame) or WRITE_THROUGH and name in frame.f_locals

    def outwards(self, name):
        frame = self.outer
        for _ in range(FRAMES_MAX):
            if frame is None:
                break
            try:
                return self.variable(frame, name)
            except KeyError:
                frame = frame.f_back
        raise KeyError(name)

    def __getitem__(self, name):
        if name == DISPLAY:
            return self.display
        if self.own is not None:
            try:
                return self.variable(self.own, name)
            except KeyError:
                pass
        if name in self.stop:
            return self.stop[name]
        if name in self.home:
            return self.home[name]
        return self.outwards(name)

    def __setitem__(self, name, value):
        if not self.owns(name):
            self.home[name] = value
        elif WRITE_THROUGH or not self.own.f_code.co_flags & CO_OPTIMIZED:
            self.own.f_locals[name] = value
        else:
            self.touched.append(self.own)
            _probe.write_local(self.own, name, value)

    def __delitem__(self, name):
        if not self.owns(name):
            del self.home[name]
        elif not self.own.f_code.co_flags & CO_OPTIMIZED:
            del self.own.f_locals[name]
        elif self[name] is not None:  # `except ... as name` sets it to None, then deletes it
            raise NameError(f"the frame's variable {name!r} can't be deleted")

    def keys(self):
        return list(self.home if self.own is None else self.locals(self.own))

    def values(self):
        return [self[name] for name in self.keys()]

    def items(self):
        return [(name, self[name]) for name in self.keys()]

    def get(self, name, default=None):
        return self[name] if name in self.keys() else default

    def __contains__(self, name):
        return name in self.keys()

    def __iter__(self):
        return iter(self.keys())

    def __len__(self):
        return len(self.keys())

    def __repr__(self):
        return repr(dict(self.items()))

    def in_frames(self, name):
        """Whether it means something else than the globals and builtins that functions see."""
        if self.own is not None and self.owns(name):
            return True
        if name in self.home:
            return False
        try:
            self.outwards(name)
        except KeyError:
            return False
        return True

    def needed(self, code):
        """Whether code must run with this as its locals, rather than with home itself."""
        frame = self.own
        if frame is not None and (frame.f_code.co_flags & CO_OPTIMIZED
                                  or frame.f_locals is not self.home):
            return True
        return any(name == DISPLAY or name in self.stop or self.in_frames(name) for name in code.co_names)

    def release(self):
        """Lets go of the frames, and empties the dicts of locals that reading made CPython keep in
        them, so that objects don't live longer; unless somebody else may be using those: a tracing
        function, which holds its frame, or who called locals()."""
        own = id(self.own)
        self.own = self.outer = self.display = self.stop = None
        while self.touched:
            frame = self.touched.pop()
            if frame in self.touched or frame.f_trace is not None:
                continue
            # the interpreter, up to 3.10 the frame that it called too, `frame`, the argument
            kept = self.kept if id(frame) == own else 0
            if sys.getrefcount(frame) > kept + (3 if sys.version_info >= (3, 11) else 4):
                continue
            snapshot = frame.f_locals
            if sys.getrefcount(snapshot) <= 3:  # the frame, `snapshot`, the argument
                snapshot.clear()


class Missing(Exception):
    """There is no such thread or frame: errno, words."""


def resolve(thread, depth, flags, held):
    """The names that an evaluation sees."""
    if not flags & (EVAL_ON_THREAD | EVAL_IN_FRAME | EVAL_IN_CRASH):
        return Names(main_globals(), None, innermost(_probe.main_thread))
    if held is None and not _probe.frames_are_safe():
        raise Missing(EOPNOTSUPP, "before 3.14 Python can't show frames safely while it runs "
                                  "several interpreters")
    level = -1
    for level, frame in enumerate(frames(thread, held)):
        if level == depth:
            outer = None if flags & (EVAL_IN_FRAME | EVAL_IN_CRASH) else frame.f_back
            return Names(frame.f_globals, frame, outer, stop(depth, flags, held))
    if level < 0:
        raise Missing(ESRCH, "the thread has ended, or runs no Python code now")
    raise Missing(ENOENT, f"no frame {depth}: the thread has {level + 1} now")


def stop(depth, flags, held):
    """What else a frame sees where this thread is held: the innermost one, of an exception that nobody caught each."""
    if held is None or depth and not flags & EVAL_IN_CRASH:
        return None
    name, value = _probe.held()
    return {name: value} if name else None


def frames(thread, held):
    """A thread's frames, innermost first: from where it is held, if it is; else from where it is now."""
    raised = []
    if isinstance(held, BaseException):
        trace = held.__traceback__
        while trace is not None and len(raised) < FRAMES_MAX:
            raised.append(trace.tb_frame)
            trace = trace.tb_next
        held = raised[0].f_back if raised else None
        yield from reversed(raised)
    else:
        held = innermost(thread) if held is None else without_agents(held)
    while held is not None:
        yield held
        held = held.f_back


def innermost(thread):
    """The program's innermost frame in a thread; None: there is none, or it can't be had."""
    return without_agents(sys._current_frames().get(thread)) if _probe.frames_are_safe() else None


def without_agents(frame):
    """The first frame outwards that is no part of what we run on top of a stack: as the files show it. Where all is
    ours, as in our own thread, the frame itself."""
    inner = at = frame
    for _ in range(FRAMES_MAX):
        if at is None:
            break
        if at.f_code.co_filename in ENTRIES:
            inner = at.f_back
        at = at.f_back
    while inner is not None and inner.f_code.co_filename.startswith(OWN_FILES):
        inner = inner.f_back
    return frame if inner is None else inner


def main_globals():
    """__main__'s; where a program has none, a dict of our own."""
    modules = sys.modules
    main = modules.get("__main__") if isinstance(modules, dict) else None
    home = getattr(main, "__dict__", None)
    return home if type(home) is dict else without_main


without_main = {"__name__": "__main__"}
