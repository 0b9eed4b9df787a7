"""What stands in sys.stdin, sys.stdout and sys.stderr while code is evaluated.

CPython up to 3.13 prints by a borrowed reference: an object that is taken out of sys.stdout while
another thread prints to it must go on existing, or the process crashes. Nobody can know when such a
print has ended. So what was ever put there is kept for good, and used again. Therefore this file is
executed in a namespace of its own, once for each interpreter, which the registry of codec error
handlers keeps alive, and where the next agent finds it again.
"""
import sys

evaluation = None  # (name, own) -> what a stream is to evaluated code; to other code it gives None
pool = []          # every Stream


class Nothing:
    """Stands for a program's sys.stdout that is None."""
    __slots__ = ()

    def write(self, text):
        return len(text)

    def flush(self):
        pass


class Lost:
    """Stands for a program's sys.stdout that was deleted."""
    __slots__ = ()

    def write(self, text):
        raise RuntimeError("lost sys.stdout")


class Stream:
    """To code that is being evaluated it is what evaluation() says, to all other code it is the
    program's object in every respect but identity, also when somebody kept it."""
    __slots__ = "_name", "_own"

    def __init__(self, name, own):
        set_name(self, name)
        set_own(self, own)

    def __getattribute__(self, name):
        return getattr(behind(self), name)

    def __setattr__(self, name, value):
        setattr(behind(self), name, value)

    def __delattr__(self, name):
        delattr(behind(self), name)

    def __repr__(self):
        return repr(behind(self))

    def __eq__(self, other):
        return self is other or behind(self) == other

    def __hash__(self):
        return hash(behind(self))

    def __dir__(self):
        return dir(behind(self))

    def __iter__(self):
        return iter(behind(self))

    def __next__(self):
        return next(behind(self))

    def __enter__(self):
        return behind(self).__enter__()

    def __exit__(self, *problem):
        return behind(self).__exit__(*problem)


set_name, get_name = Stream._name.__set__, Stream._name.__get__
set_own, get_own = Stream._own.__set__, Stream._own.__get__
NOTHING, LOST = Nothing(), Lost()
UNUSED = object()  # the _own of a Stream that only the pool refers to


def counts(streams):
    return [sys.getrefcount(stream) for stream in streams]


UNKEPT = counts([Stream("", None)])[0]


def behind(stream):
    name, own = get_name(stream), get_own(stream)
    if own is UNUSED:  # a print that began before it was taken out
        own = getattr(sys, name, LOST)
        if type(own) is Stream:
            own = get_own(own)
            own = None if own is UNUSED else own
    found = evaluation and evaluation(name, own)
    if found is not None:
        return found
    return NOTHING if own is None else own


def install(names):
    for name in names:
        own = getattr(sys, name, LOST)
        if type(own) is not Stream:
            setattr(sys, name, take(name, own))


def take(name, own):
    """One that nobody uses, or a new one."""
    for index, count in enumerate(counts(pool)):
        if count <= UNKEPT and get_name(pool[index]) == name:
            set_own(pool[index], own)
            return pool[index]
    stream = Stream(name, own)
    pool.append(stream)
    return stream


def restore(names):
    """Gives the streams back to the program, unless somebody has replaced them."""
    for name in names:
        stream = getattr(sys, name, None)
        if type(stream) is not Stream:
            continue
        own = get_own(stream)
        if own is LOST:
            delattr(sys, name)
        elif own is not UNUSED:
            setattr(sys, name, own)
    own = stream = None
    for index, count in enumerate(counts(pool)):
        if count <= UNKEPT:
            set_own(pool[index], UNUSED)  # the program's object must not live longer than it would
