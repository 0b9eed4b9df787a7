"""Sees optimizers make their steps, also those that were made long ago.

What an optimizer's step() is has been wrapped by PyTorch, in its class, often by a scheduler again, in the
instance, and may have been kept as a bound method by anybody. All these call the function at the bottom through
the cell of a closure. So ours is put into that cell: no function or attribute that the program has is another
one, and all is as it was when the cell is. Only a class without such a wrapper, as it may be until it is
instantiated, gets another attribute."""
import sys
from types import FunctionType

DEPTH_MAX = 8   # of wrappers around wrappers
NESTED_MAX = 20 # calls between an optimizer's step() and that of one that it uses


def watched(original, live):
    """Calls original, a step()."""
    def step(*args, **kwargs):
        training = live.get("training")
        turn = training.begin(*args[:1]) if training is not None else None
        result = original(*args, **kwargs)
        if turn is not None and live.get("training") is training:
            training.end(turn, *args[:1])
        return result
    return step


def is_ours(function):
    return type(function) is FunctionType and function.__code__ is CODE


CODE = watched(None, None).__code__


def is_inner():
    """Whether whoever calls the caller of this is ours, called by another optimizer's step()."""
    frame = sys._getframe(2).f_back
    for _ in range(NESTED_MAX):
        if frame is None or frame.f_code is CODE:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code is CODE


def behind(function):
    """The step() that ours calls."""
    return function.__closure__[CODE.co_freevars.index("original")].cell_contents


def contents(cell):
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def cells(function):
    """The cells through which a wrapper may call what it wraps: the one named as in PyTorch's wrappers
    first."""
    named = list(zip(function.__code__.co_freevars, function.__closure__ or ()))
    named.sort(key=lambda item: item[0] != "func")
    return [cell for _, cell in named if type(contents(cell)) is FunctionType]


def classes():
    """Every optimizer class there is that has a step() of its own."""
    found, todo = [], [kept["torch"].optim.Optimizer]
    while todo:
        for one in type.__subclasses__(todo.pop()):
            if one not in found:
                found.append(one)
                todo.append(one)
    return [one for one in found if type(one.__dict__.get("step")) is FunctionType]


def codes():
    """Of all step() functions and of what they call, before there is ours; not of torch.no_grad(), with
    which others are decorated as well."""
    functions = [one.__dict__["step"] for one in classes()]
    functions += [contents(cell) for function in functions for cell in cells(function)]
    found = {function.__code__ for function in functions}
    return [code for code in found if code.co_name == "step" or "/torch/optim/" in code.co_filename]


def watch(live):
    """Puts ours into each class that hasn't got it."""
    for one in classes():
        function = one.__dict__["step"]
        inner = cells(function)
        if is_ours(function) or any(is_ours(contents(cell)) for cell in inner):
            continue
        if inner:
            cell = inner[0]
            cell.cell_contents = watched(contents(cell), live)
        else:
            ours = watched(function, live)
            ours.__dict__.update(function.__dict__)
            for name in "__module__", "__name__", "__qualname__", "__doc__":
                setattr(ours, name, getattr(function, name))
            ours.__wrapped__ = function
            one.step = ours


def unwatch():
    """Puts back what was there, in the wrappers that were put around ours since as well."""
    for one in classes():
        if is_ours(one.__dict__["step"]):
            one.step = behind(one.__dict__["step"])
        function = one.__dict__["step"]
        for _ in range(DEPTH_MAX):
            wrapped = function.__dict__.get("__wrapped__")
            if is_ours(wrapped):
                function.__wrapped__ = behind(wrapped)
            inner = cells(function)
            for cell in inner:
                if is_ours(contents(cell)):
                    cell.cell_contents = behind(contents(cell))
            if not inner:
                break
            function = contents(inner[0])
