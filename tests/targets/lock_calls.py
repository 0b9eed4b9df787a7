"""Threads that have taken a Lock in all ways that there are, and stand still: each function below, as a thread of its
name. For each another thread waits, "waiter-NAME", for a Lock that it has or had. The main thread prints "ready" once
all of them do.

A comment "# takes" marks the line where a thread took it that holds it."""
import sys
import threading
import time
import types

import oracle

samples, standing = [], {}
Lock = threading.Lock


def sample(function):
    samples.append(function)
    return function


def stand():
    standing[threading.current_thread().name].set()
    time.sleep(10**6)


def occupy(lock, is_given_back):
    """By nobody whom a frame tells of."""
    while not lock.acquire(False) and is_given_back:
        time.sleep(0.001)


def let_go(lock):
    lock.release()


def let_go_and_stand(lock):
    lock.release()
    stand()


def maybe_let_go_and_stand(lock, really):
    if really:
        lock.release()
    stand()


def wait(lock):
    lock.acquire()


# ---- taken, and not given back ----


@sample
def plain(lock):
    lock.acquire()  # takes
    stand()


@sample
def try_finally(lock):
    lock.acquire()  # takes
    try:
        stand()
    finally:
        lock.release()


@sample
def inside_of_try(lock):
    try:
        lock.acquire()  # takes
        stand()
    finally:
        lock.release()


@sample
def in_a_loop(lock):
    while True:
        lock.acquire()
        lock.release()
        lock.acquire()  # takes
        try:
            stand()
        finally:
            lock.release()


@sample
def after_a_way_out(lock, out=False):
    lock.acquire()  # takes
    if out:
        lock.release()
        return
    stand()


@sample
def in_a_handler(lock):
    lock.acquire()  # takes
    try:
        raise ValueError
    except ValueError:
        stand()
    finally:
        lock.release()


@sample
def in_finally(lock):
    lock.acquire()  # takes
    try:
        pass
    finally:
        stand()
        lock.release()


@sample
def on_both_ways(lock, way=True):
    for _ in range(2):
        if way:
            lock.acquire()
        else:
            lock.acquire()
        stand()


@sample
def in_with(lock):
    with Lock():
        lock.acquire()  # takes
        try:
            with Lock():
                stand()
        finally:
            lock.release()


@sample
def after_with(lock):
    with lock:
        pass
    lock.acquire()  # takes
    stand()


@sample
def after_a_store(lock):
    one = 1
    lock.acquire()  # takes
    two = one
    stand()
    return two


@sample
def of_many(lock):
    for each in (Lock(), lock):
        each.acquire()  # takes
        if each is lock:
            stand()


@sample
def others_given_back(lock):
    other = Lock()
    other.acquire()
    lock.acquire()  # takes
    other.release()
    stand()


@sample
def hot(lock):
    for _ in range(5000):
        lock.acquire()
        lock.release()
    lock.acquire()  # takes
    stand()


@sample
def called_under(lock):
    lock.acquire()  # takes
    maybe_let_go_and_stand(Lock(), False)


@sample
def itself_waiting(lock):
    """It may wait for somebody to give it back: then it is no holder to itself."""
    lock.acquire()  # takes
    standing["itself_waiting"].set()
    lock.acquire()


@sample
def deep(lock, calls=500):
    if calls:
        deep(lock, calls - 1)
    lock.acquire()  # takes
    stand()


@sample
def where_calls_are_monitored(lock):
    if hasattr(sys, "monitoring"):
        sys.monitoring.use_tool_id(4, "calls")
        sys.monitoring.set_local_events(4, monitored_calls.__code__, sys.monitoring.events.CALL)
    monitored_calls(lock)


def monitored_calls(lock):
    lock.acquire()  # takes
    stand()


class Keeper:
    common = Lock()

    def __init__(self):
        self.lock = Lock()
        self.inner = types.SimpleNamespace(lock=Lock())


class Slots:
    __slots__ = ("lock",)

    def __init__(self):
        self.lock = Lock()


@sample
def of_an_attribute(keeper):
    keeper.lock.acquire()  # takes
    stand()


@sample
def of_an_attribute_further_on(keeper):
    keeper.inner.lock.acquire()  # takes
    stand()


@sample
def of_a_class(keeper):
    keeper.common.acquire()  # takes
    stand()


@sample
def of_a_slot(slots):
    slots.lock.acquire()  # takes
    stand()


shared, shared_by_module = Lock(), Lock()
module = sys.modules[__name__]


@sample
def of_a_global_name(_):
    shared.acquire()  # takes
    stand()


@sample
def of_a_module(_):
    module.shared_by_module.acquire()  # takes
    stand()


@sample
def of_a_closure(lock):
    def inner():
        lock.acquire()  # takes
        stand()

    inner()


@sample
def of_a_cell(lock):
    lock.acquire()  # takes
    stand()
    return lambda: lock


@sample
def of_a_condition(condition):
    condition.acquire()  # takes
    stand()


@sample
def of_executed_code(lock):
    exec("lock.acquire()\nstand()", {"stand": stand}, {"lock": lock})


@sample
def of_a_large_function(lock):
    names = "".join(f"    name_{i} = {i}\n" for i in range(300))
    source = f"def large(given):\n{names}    lock = given\n    while True:\n        lock.acquire()\n        stand()\n" \
             f"    {names}        lock.release()\n".replace("\n    " + names, "\n" + names.replace("    ", " " * 8))
    space = {"stand": stand}
    exec(source, space)
    space["large"](lock)


@sample
def certainly(lock):
    with lock:  # takes
        stand()


@sample
def certainly_while_others_are_given_back(lock):
    with lock:  # takes
        [locks.pop() for locks in [[]] if locks]
        other = Lock()
        other.acquire()
        [other][0].release()
        stand()


@sample
def again_in_with(lock):
    with lock:
        lock.release()
        lock.acquire()  # takes
        stand()


@sample
def maybe_not_in_with(lock, really=False):
    with lock:  # takes
        if really:
            lock.release()
        stand()


@sample
def maybe_not_in_what_with_calls(lock):
    with lock:  # takes
        maybe_let_go_and_stand(lock, False)


@sample
def maybe_not_in_with_where_lines_are_monitored(lock):
    if hasattr(sys, "monitoring"):
        sys.monitoring.use_tool_id(2, "lines of a block")
        sys.monitoring.set_local_events(2, monitored_block.__code__, sys.monitoring.events.LINE)
    monitored_block(lock)


def monitored_block(lock, really=False):
    with lock:  # takes
        if really:
            lock.release()
        stand()


@sample
def maybe_not_in_with_among_many_calls(lock):
    calls = "            lock.release()\n" * 100
    space = {"stand": stand}
    exec(f"def many(lock, really=False):\n    with lock:\n        if really:\n{calls}        stand()\n", space)
    space["many"](lock)


@sample
def certainly_in_an_rlock(lock):
    lock.acquire()  # takes
    stand()


@sample
def certainly_in_the_outer_block(lock):
    with lock:  # takes
        again(lock)


def again(lock):
    lock.acquire()
    lock.release()
    stand()


# ---- not taken, or given back, or it isn't known ----


@sample
def not_given_back_in_between(lock):
    lock.acquire()
    lock.release()
    stand()


@sample
def not_after_finally(lock):
    lock.acquire()
    try:
        pass
    finally:
        lock.release()
    stand()


@sample
def not_after_release_in_finally(lock):
    lock.acquire()
    try:
        pass
    finally:
        lock.release()
        stand()


@sample
def not_after_release_in_a_handler(lock):
    lock.acquire()
    try:
        raise ValueError
    except ValueError:
        lock.release()
        stand()


@sample
def not_if(lock, really=False):
    if really:
        lock.acquire()
    stand()


@sample
def not_if_on_one_way_only(lock, really=True):
    if really:
        lock.acquire()
    stand()


@sample
def not_the_next_time(lock):
    for i in range(2):
        if i:
            stand()
        lock.acquire()
        lock.release()


@sample
def not_with_a_timeout(lock):
    lock.acquire(timeout=1)
    stand()


@sample
def not_what_was_bound_before(lock):
    other = lock
    other.acquire()
    lock = Lock()
    other = Lock()
    stand()


@sample
def not_what_was_bound_since(lock):
    mine = Lock()
    mine.acquire()
    mine = lock
    stand()


@sample
def not_what_an_attribute_was_since(keeper):
    mine = Keeper()
    mine.lock.acquire()
    mine.lock = keeper.lock
    stand()


@sample
def not_if_some_lock_is_given_back(lock):
    lock.acquire()
    for each in [[lock]]:
        each[0].release()
    stand()


@sample
def not_if_given_back_by_a_name_bound_since(lock):
    other = Lock()
    lock.acquire()
    other.acquire()
    for each in (lock, other):
        each.release()
    stand()


@sample
def not_by_a_method_that_is_kept(lock):
    take = lock.acquire
    take()
    stand()


@sample
def not_one_of_two(lock):
    other = Lock()
    (other or lock).acquire()
    stand()


@sample
def not_in_what_it_calls(lock):
    lock.acquire()
    let_go_and_stand(lock)


@sample
def not_maybe_in_what_it_calls(lock):
    lock.acquire()
    maybe_let_go_and_stand(lock, True)


@sample
def not_in_with(lock):
    with lock:
        lock.release()
        stand()


@sample
def not_in_what_with_calls(lock):
    with lock:
        let_go_and_stand(lock)


@sample
def not_with_a_condition(condition):
    condition.acquire()
    standing["not_with_a_condition"].set()
    condition.wait()


@sample
def not_of_two(lock):
    """Another one gives it back, and takes it."""
    lock.acquire()
    other = threading.Thread(target=also, args=(lock,), name="also", daemon=True)
    standing["also"] = threading.Event()
    other.start()
    standing["also"].wait()
    stand()


def also(lock):
    let_go(lock)
    lock.acquire()
    stand()


@sample
def not_a_semaphore(semaphore):
    semaphore.acquire()
    stand()


@sample
def not_where_lines_are_monitored(lock):
    if hasattr(sys, "monitoring"):
        sys.monitoring.use_tool_id(3, "lines")
        sys.monitoring.set_local_events(3, monitored.__code__, sys.monitoring.events.LINE)
        monitored(lock)
    stand()


def monitored(lock):
    lock.acquire()
    stand()


waited = dict(of_an_attribute=Keeper(), of_an_attribute_further_on=Keeper(), of_a_class=Keeper(), of_a_slot=Slots(),
              not_what_an_attribute_was_since=Keeper(), of_a_global_name=shared, of_a_module=shared_by_module,
              of_a_condition=threading.Condition(Lock()), not_with_a_condition=threading.Condition(Lock()),
              certainly_in_an_rlock=threading.RLock(),
              certainly_in_the_outer_block=threading.RLock(), not_a_semaphore=threading.Semaphore(1))
for function in samples:
    name = function.__name__
    given = waited.get(name) or Lock()
    lock = {"of_a_class": lambda: Keeper.common, "of_an_attribute_further_on": lambda: given.inner.lock}.get(
        name, lambda: getattr(given, "lock", given))()
    standing[name] = threading.Event()
    threading.Thread(target=function, args=(given,), name=name, daemon=True).start()
    standing[name].wait()
    occupy(lock, name == "not_with_a_condition")  # by wait(), soon
    threading.Thread(target=wait, args=(lock,), name=f"waiter-{name}", daemon=True).start()
oracle.park()
