"""What a program has of PyTorch, looked at without running any code of the program."""
import sys
import _signal

kept = {}       # "torch": the module, which the program might take out of sys.modules
ITEMS_MAX = 64  # of a container of tensors that are looked at


def tensors(value, depth=3):
    """The tensors in tuples, lists and dicts; only what is exactly a tensor, since other classes may
    run code of the program."""
    torch = kept["torch"]
    if type(value) is torch.Tensor or type(value) is torch.nn.Parameter:
        yield value
        return
    if not depth:
        return
    if isinstance(value, dict):
        items = iter(list(dict.values(value))[:ITEMS_MAX])
    elif isinstance(value, tuple):
        items = tuple.__iter__(value[:ITEMS_MAX] if type(value) is tuple else value)
    elif type(value) is list:
        items = iter(value[:ITEMS_MAX])
    else:
        return
    for item in items:
        yield from tensors(item, depth - 1)


def dynamo_is_used():
    """Whether anything is for torch.compile(): it would compile anew if there were hooks."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    patcher = getattr(sys.modules.get("torch._dynamo.eval_frame"), "TorchPatcher", None)
    patched = getattr(getattr(patcher, "patch", None), "cache_info", None)  # it is called once, by the first one
    return bool(counters and counters.get("frames") or patched is not None and patched().currsize)


def steps_are_compiled():
    """Whether torch.compile() has gone into an optimizer's step()."""
    tracker = getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None)
    seen = [known() for known in getattr(tracker, "seen", ())]
    return any(code is mine for mine in codes() for code in seen)


def foreign(problem):
    """Whether an exception that came up in our code is the program's: a handler of a signal may have
    raised it, or another thread may have sent it."""
    if not type(problem).__module__.startswith(("builtins", "torch")):
        return True
    handlers = [_signal.getsignal(number) for number in range(1, _signal.NSIG)]
    codes = [getattr(getattr(one, "__func__", one), "__code__", None) for one in handlers]
    at = problem.__traceback__
    while at is not None:
        if any(at.tb_frame.f_code is code for code in codes):
            return True
        at = at.tb_next
    return False
