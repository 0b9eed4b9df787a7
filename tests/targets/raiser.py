"""Raises exceptions in every way there is, and keeps a log of its own: a line of standard input names a scenario,
the answer is what that raised, as [type, message, func, lineno, handled] in a JSON list.

With the argument `probing` it has the agent."""
import re
import asyncio
import codecs
import concurrent.futures
import contextlib
import gc
import inspect
import json
import os
import signal
import sys
import threading
import weakref

if "probing" in sys.argv:
    import probing

log = []
touched = []      # what was called of the classes below that nobody should call
ANY = "any"
scenarios = {}


def scenario(function):
    scenarios[function.__name__] = function
    return function


def name_of(type_):
    return type_.__qualname__ if type_.__module__ == "builtins" else f"{type_.__module__}.{type_.__qualname__}"


def note(error, handled=1, message=None):
    """The program's own view of an exception: where its traceback begins."""
    traceback = error.__traceback__
    while traceback.tb_next:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    log.append([name_of(type(error)), str(error) if message is None else message,
                getattr(code, "co_qualname", code.co_name), traceback.tb_lineno, handled])


def fail(what=None):
    raise what or ValueError("failed")


class Mine(Exception):
    pass


def deep(depth, what=None):
    return deep(depth - 1, what) if depth else fail(what)


@scenario
def plain():
    try:
        raise ValueError("plain")
    except ValueError as error:
        note(error)


@scenario
def from_c():
    for wrong in (lambda: 1 / 0, lambda: int("x"), lambda: [][1], lambda: None.x, lambda: {}["k"],
                  lambda: open("/nowhere/at all"), lambda: os.rename("/nowhere/a", "/nowhere/b")):
        try:
            wrong()
        except Exception as error:
            note(error)


@scenario
def unwound():
    for depth in (1, 5, 200):
        try:
            deep(depth, Mine(depth))
        except Mine as error:
            note(error)


@scenario
def finally_and_with():
    @contextlib.contextmanager
    def manager():
        try:
            yield
        finally:
            pass
    try:
        try:
            with manager(), contextlib.ExitStack():
                try:
                    fail()
                finally:
                    len("")
        except KeyError:
            pass
    except ValueError as error:
        note(error)


@scenario
def raised_again():
    try:
        try:
            try:
                fail()
            except ValueError:
                raise
        except ValueError as error:
            raise error
    except ValueError as error:
        note(error)
        kept = error
    try:
        deep(3, kept)
    except ValueError:
        pass
    try:
        raise kept from KeyError("never raised")
    except ValueError:
        pass


@scenario
def chained():
    try:
        try:
            fail()
        except ValueError as error:
            note(error)
            raise Mine("second") from error
    except Mine as error:
        note(error)
    try:
        try:
            fail()
        finally:
            {}["third"]
    except KeyError as error:
        note(error.__context__)
        note(error)


@scenario
def same_address():
    """Those that are gone leave their addresses to those that follow."""
    for number in range(300):
        try:
            fail(Mine(number) if number % 3 else None)
        except Exception as error:
            note(error)


@scenario
def given_tracebacks():
    """New exceptions with old tracebacks, as six.reraise() makes them."""
    for number in range(100):
        try:
            try:
                deep(number % 3)
            except ValueError as error:
                note(error)
                new = Mine(number).with_traceback(error.__traceback__)
                error = None
                raise new
        except Mine as error:
            note(error)
            new = None


@scenario
def kept():
    """Those that are raised again long afterwards, after many others."""
    errors = []
    for number in range(50):
        try:
            fail(Mine(number))
        except Mine as error:
            note(error)
            errors.append(error)
    for number in range(500):
        try:
            deep(3)
        except ValueError as error:
            note(error)
    for error in errors:
        try:
            deep(2, error)
        except Mine:
            pass


@scenario
def generators():
    def numbers():
        yield 1
        fail()

    def echo():
        try:
            yield 1
        except KeyError as error:
            note(error)
            yield 2
    try:
        list(numbers())
    except ValueError as error:
        note(error)
    echoing = echo()
    next(echoing)
    echoing.throw(KeyError("thrown"))
    echoing.close()
    dropped = numbers()
    next(dropped)
    dropped.close()


@scenario
def iterators():
    """How loops end is no news."""
    class Count:
        def __init__(self):
            self.left = 3

        def __iter__(self):
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1

    def returns():
        yield
        return 5

    def delegates():
        got = yield from returns()
        assert got == 5
        yield from Count()

    async def loop():
        async for _ in Count():
            pass
    for _ in Count():
        pass
    list(Count()), list(delegates()), max(x or 0 for x in Count())
    try:
        next(Count().__iter__())
        next(iter([]))
    except StopIteration:
        pass
    with contextlib.suppress(StopIteration), contextlib.closing(returns()) as some:
        next(some), next(some)
    asyncio.run(loop())


@scenario
def special_iteration():
    class Enough(StopIteration):
        pass

    class Until:
        def __iter__(self):
            return self

        def __next__(self):
            error = Enough("enough")
            log.append([name_of(Enough), "enough", getattr(Until.__next__.__code__, "co_qualname", "__next__"),
                        inspect.currentframe().f_lineno + 1, ANY])
            raise error
    for _ in Until():
        pass
    try:
        next(Until())
    except Enough:
        pass

    def leaks():
        next(iter([]))
        yield
    try:
        list(leaks())
    except RuntimeError as error:
        note(error)


@scenario
def coroutines():
    async def inner():
        await asyncio.sleep(0)
        fail()

    async def outer():
        await inner()

    async def caught():
        try:
            await outer()
        except ValueError as error:
            note(error)
    asyncio.run(caught())


@scenario
def tasks():
    async def inner(text):
        await asyncio.sleep(0)
        raise Mine(text)

    async def outer(text):
        await inner(text)

    async def main():
        task = asyncio.create_task(outer("awaited"))
        await asyncio.sleep(0.01)
        try:
            await task
        except Mine as error:
            note(error)
        task = asyncio.create_task(outer("never awaited"))
        await asyncio.wait([task])
        note(task.exception(), 0)
        for error in await asyncio.gather(outer("gathered"), outer("as well"), return_exceptions=True):
            note(error, 0)

        def callback():
            raise Mine("callback")
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        asyncio.get_running_loop().call_soon(callback)
        await asyncio.sleep(0.01)
        note(errors[0], 0)
    asyncio.run(main())


@scenario
def cancelled():
    async def sleeper():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            log.append(["asyncio.exceptions.CancelledError", ANY, ANY, ANY, ANY])
            raise

    async def main():
        task = asyncio.create_task(sleeper())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    asyncio.run(main())


@scenario
def threads():
    errors = []
    threading.excepthook, before = lambda args: errors.append(args.exc_value), threading.excepthook

    class Own(threading.Thread):
        def run(self):
            deep(3, Mine("own"))
    all_of_them = [threading.Thread(target=deep, args=(i, Mine(i))) for i in range(8)] + [Own()]
    for thread in all_of_them:
        thread.start()
        thread.join()
    threading.excepthook = before
    for error in errors:
        note(error, 0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(fail)
        try:
            future.result()
        except ValueError as error:
            note(error)
        note(pool.submit(fail, Mine("in a worker")).exception())


@scenario
def swallowed_by_c():
    class Lazy:
        def __getattr__(self, name):
            raise AttributeError(name)

        def __getitem__(self, index):
            raise IndexError(index)

        def __del__(self):
            raise Mine("in __del__")
    here = "swallowed_by_c.<locals>.Lazy." if sys.version_info >= (3, 11) else ""
    first = Lazy.__getattr__.__code__.co_firstlineno
    log.append(["AttributeError", "x", here + "__getattr__", first + 1, ANY])
    log.append(["IndexError", "0", here + "__getitem__", first + 4, ANY])
    log.append([name_of(Mine), "in __del__", here + "__del__", first + 7, ANY])
    sys.unraisablehook, before = lambda _: None, sys.unraisablehook
    lazy = Lazy()
    hasattr(lazy, "x")
    for _ in lazy:
        pass
    del lazy
    sys.unraisablehook = before


@scenario
def messages():
    class Text(str):
        pass
    known = (
        ValueError(), ValueError("a", 1, 2.5, None, True, b"b"), ValueError(-7), ValueError(b"\xff"),
        ValueError("\xe9 \U0001f600"), KeyError("k"), KeyError(3), KeyError(), KeyError("a", "b"), KeyError("'"),
        OSError(2, "words"), OSError(2, "words", "file"), OSError("only"), OSError(),
        OSError(2, "words", b"f", None, "other"), FileNotFoundError(2, "gone", 5), ImportError("no", name="x"),
        SyntaxError("bad", ("dir/f.py", 3, 1, "text")), SyntaxError("alone"),
        UnicodeDecodeError("utf-8", b"a\xffb", 1, 2, "start"), UnicodeDecodeError("utf-8", b"abc", 0, 2, "all"),
        UnicodeEncodeError("ascii", "a\u20ac", 1, 2, "no"), UnicodeEncodeError("ascii", "\xe9", 0, 1, "no"),
        UnicodeEncodeError("ascii", "\U0001f600", 0, 1, "no"), UnicodeEncodeError("ascii", "abc", 0, 3, "no"),
        SystemExit(3), KeyboardInterrupt(), AttributeError("x"), NameError("n"))
    for error in known:
        try:
            fail(error)
        except BaseException as caught:
            note(caught)
    unknown = (ValueError(Text("x")), ValueError([1]), ValueError(10**100), KeyError((1, 2)),
               ValueError(ValueError("x")), ValueError(Ellipsis, 1))
    for error in unknown:
        try:
            fail(error)
        except Exception as caught:
            note(caught)
            log[-1][1] = None
    try:
        fail(ValueError("x", [1]))
    except ValueError as error:
        note(error, message="x")
    if sys.version_info >= (3, 11):
        try:
            fail(ExceptionGroup("several", [ValueError(1), KeyError(2)]))
        except Exception as error:
            note(error)


@scenario
def odd_texts():
    for text in ("x" * 5000, "é" * 5000, "\udc80", "nul\0", ""):
        try:
            fail(ValueError(text))
        except ValueError as error:
            note(error)


@scenario
def nothing_runs():
    """Of the program's code, to know what an exception says."""
    def touch(name):
        return lambda *_: touched.append(name)

    class Meta(type):
        __getattribute__ = lambda *args: (touched.append("meta"), type.__getattribute__(*args))[1]

    class Nosy(Exception, metaclass=Meta):
        __str__ = __repr__ = __eq__ = __hash__ = __len__ = touch("special")
        args = property(touch("args"))
        __class__ = property(touch("class"))
        __traceback__ = property(touch("traceback"))

        def __getattribute__(self, name):
            touched.append(name)

    class Argument:
        __str__ = __repr__ = __eq__ = __hash__ = __getattr__ = touch("argument")
    try:
        try:
            line = inspect.currentframe().f_lineno + 1
            raise Nosy("said", Argument())
        finally:
            pass
    except Nosy:
        pass
    type.__getattribute__(Nosy, "__qualname__")
    log.append(["__main__.nothing_runs.<locals>.Nosy", "said", "nothing_runs", line, 1])
    assert not touched, touched


@scenario
def nothing_is_kept():
    class Local:
        pass
    gone = []

    def work():
        local = Local()
        gone.append(weakref.ref(local))
        raise Mine("kept?")
    for _ in range(10):
        try:
            work()
        except Mine as error:
            gone.append(weakref.ref(error))
            note(error)
    assert not [one for one in gone if one()]


@scenario
def recursion():
    def endless():
        endless()
    kept = sys.getrecursionlimit()
    for _ in range(3):
        try:
            endless()
        except RecursionError as error:
            note(error)
    sys.setrecursionlimit(kept)


@scenario
def recursion_in_c():
    """At the limit no call of ours may fail in the place of the program's own exceptions."""
    class Odd:
        def __init__(self, depth):
            self.depth = depth

        def __lt__(self, other):
            self.depth[0] += 1
            try:
                raise Mine(0)
            except Mine:
                pass
            return sorted([Odd(self.depth), Odd(self.depth)]) is None
    words = set()
    for _ in range(2):
        try:
            sorted([Odd([0]), Odd([0])])
        except RecursionError as error:
            # how far below the limit it was noticed, and by whom, is chance
            words.add(re.sub(r"\d+ kB\)( while calling a Python object)?", "N kB)", str(error)))
    log.append([sorted(words)])


@scenario
def memory():
    try:
        bytearray(1 << 62)
    except MemoryError as error:
        note(error)


@scenario
def signals():
    def handler(*_):
        raise Mine("from a handler")
    signal.signal(signal.SIGUSR1, handler)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        while True:
            pass
    except Mine as error:
        note(error)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    except KeyboardInterrupt as error:
        log.append(["KeyboardInterrupt", "", ANY, ANY, 1])


@scenario
def collector():
    def callback(phase, info):
        if phase == "start":
            try:
                fail()
            except ValueError as error:
                note(error)
    gc.callbacks.append(callback)
    gc.collect()
    gc.callbacks.remove(callback)


@scenario
def code_of_many_kinds():
    def attempt(function):
        try:
            function()
        except Mine as error:
            note(error)
    attempt(lambda: fail(Mine("lambda")))
    attempt(lambda: (lambda: {}[Mine("in brackets")] if fail(Mine("nested")) else 0)())
    attempt(lambda: [fail(Mine(x)) for x in (1,)])
    attempt(lambda: exec("raise Mine('executed')", globals()))
    attempt(lambda: type("T", (), {"f": property(lambda self: fail(Mine("property")))})().f)
    attempt(lambda: max([1, 2], key=lambda x: fail(Mine("key"))))


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        log.clear()
        name, *args = line.split()
        gc.collect()
        scenarios[name](*args)
        print(json.dumps(log), flush=True)


if __name__ == "__main__":
    main()
