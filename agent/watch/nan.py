"""Finds the first thing in a model that isn't finite: what a module makes, a gradient as this process has computed it,
before anybody adds up those of all ranks, or a parameter that the optimizer has changed.

Hooks on all modules, on parameters and on optimizers look at tensors and change nothing. Where all is well that is one
sum of each: a sum that is finite has no other parts. The agent executes this behind imported.py, modules.py and
optimizers.py of record/torch/ in a private namespace, whose `_probe` is watch/nan.c.

What runs in the program's threads begins in closures that know nothing of that namespace but what `live` gives them:
"looker", and the same as "training", by which optimizers find it."""
import sys
from _thread import get_ident
from math import isfinite
from types import BuiltinFunctionType, FunctionType

KNOWN_MAX = 50000   # modules and parameters
LEAVE_TRIES = 2000  # milliseconds to wait for threads that are just in our code

live = {}


def shown(tensor):
    """As it stands elsewhere: "float32[64, 32] cpu"."""
    return f"{str(tensor.dtype).rpartition('.')[2]}{list(tensor.shape)} {tensor.device}"


def own_part(tensor):
    """What this process has of a tensor: of a DTensor, whose elements are spread over ranks, its shard. None: it is of
    another class, and to look at it may run code of the program."""
    torch, kind = kept["torch"], type(tensor)
    if kind.__name__ == "DTensor" and kind.__module__.startswith("torch.distributed."):
        tensor, kind = tensor._local_tensor, type(tensor._local_tensor)
    return tensor if kind is torch.Tensor or kind is torch.nn.Parameter else None


def numbers(tensor):
    """A tensor of the same values whose elements are floats in main memory or on a device; None: there is none."""
    torch = kept["torch"]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or not tensor.numel():
        return None
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    elif not tensor.dtype.is_floating_point:
        return None
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():  # nothing may be waited for
        return None
    return tensor


def counted(tensor):
    """(NaN, infinite) elements of a tensor that has any; None: it has none."""
    torch = kept["torch"]
    tensor = own_part(tensor)
    if tensor is None:
        return None
    alone = torch._C._DisableTorchDispatch()  # for as long as it is there, before 2.0
    with torch.no_grad(), torch._C.DisableTorchFunction(), alone if hasattr(alone, "__enter__") else torch.no_grad():
        tensor = numbers(tensor)
        if tensor is None:
            return None
        total = tensor.sum(dtype=torch.float32) if tensor.element_size() < 4 else tensor.sum()
        if isfinite(total.item()):
            return None
        found = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        return found if any(found) else None  # large ones may add up to infinity


class Looker:
    def __init__(self):
        self.watches = {}    # number -> weak reference to a model; None: all there are
        self.only = None     # ids of all that is to be looked at; None: everything is
        self.labels = Labels()
        self.known = {}      # id -> (weak reference, label of the model, path, handle of our hook or None)
        self.unseen = 0      # tensors that couldn't be looked at
        self.hook, self.failed = _probe.hook, _probe.failed

    # ---- what is there

    def add(self, number, model):
        self.watches[number] = ref(model) if model is not None else None
        if model is not None:
            self.learn(model)
        self.choose()

    def remove(self, number):
        self.watches.pop(number, None)
        if self.watches:
            self.choose()
        else:
            stop()

    def choose(self):
        """A model may have got other parts since."""
        only = set()
        for model in self.watches.values():
            if model is None:
                self.only = None
                return
            model = model()
            if model is not None:
                only.update(parts(model))
        self.only = only

    def find(self, thing):
        known = self.known.get(id(thing))
        return known if known is not None and known[0]() is thing else None

    def learn(self, root):
        """A module that none we know of has."""
        label = self.labels.of(root)
        for path, module in [("", root), *walk(root)]:
            self.note(module, label, path)
            for name, parameter in (object.__getattribute__(module, "__dict__").get("_parameters") or {}).items():
                if parameter is not None:
                    self.note(parameter, label, f"{path}.{name}" if path else name)

    def note(self, thing, label, path):
        before, handle = self.find(thing), None
        if before is None and len(self.known) >= KNOWN_MAX:
            return
        if before is not None:
            handle = before[3]
        elif type(thing) is kept["torch"].nn.Parameter and thing.requires_grad and thing.is_leaf:
            handle = thing.register_hook(self.hook(arriving(live, ref(thing))))
            if live.get("looker") is not self:  # it has ended meanwhile, and may not have seen this one
                handle.remove()
        key, known = id(thing), self.known
        self.known[key] = ref(thing, lambda _: known.pop(key, None)), label, path, handle

    def name(self, thing):
        known = self.find(thing)
        return known[1:3] if known is not None else (type(thing).__name__, "")

    # ---- what happens: what was found, for whom, if anything was

    def enter(self, module, args):
        if self.only is None:
            if self.find(module) is None:
                self.learn(module)
        elif any(model is not None and model() is module for model in list(self.watches.values())):
            self.choose()

    def leave(self, module, args, output):
        if self.only is not None and id(module) not in self.only:
            return None
        for tensor in tensors(output):
            found = self.look(tensor)
            if found:
                came = any(self.look(one) for one in tensors(args))
                return self.tell(module, "input" if came else "forward", tensor, found)

    def arrive(self, parameter, gradient):
        parameter = parameter()
        return self.judge(parameter, "backward", gradient) if parameter is not None else None

    def begin(self, optimizer):
        """Gradients that no hook was told of: those of FSDP, for one."""
        for parameter in parameters(optimizer):
            known = self.find(parameter)
            if parameter.grad is not None and (known is None or known[3] is None or
                                               type(parameter.grad).__name__ == "DTensor"):
                found = self.judge(parameter, "backward", parameter.grad)
                if found:
                    return found

    def end(self, began, optimizer):
        for parameter in parameters(optimizer):
            found = self.judge(parameter, "step", parameter)
            if found:
                return found

    def judge(self, parameter, stage, tensor):
        if self.only is None or id(parameter) in self.only:
            found = self.look(tensor)
            if found:
                return self.tell(parameter, stage, tensor, found)

    def look(self, tensor):
        try:
            return counted(tensor)
        except RuntimeError:  # within vmap(), of 8 bits and the like
            self.unseen += 1
            return None

    def tell(self, thing, stage, tensor, found):
        model, path = self.name(thing)
        said = model, path, stage, *found, shown(tensor), tensor
        return [(number, said) for number, wanted in list(self.watches.items())
                if wanted is None or wanted() is not None and id(thing) in parts(wanted())]

    def fail(self, problem):
        """Our mistakes end it, and nothing else."""
        if foreign(problem):
            raise problem
        at = problem.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        stop()
        self.failed(f"it ended by itself: {type(problem).__name__}: {problem}"
                    + (f" ({at.tb_frame.f_code.co_filename}:{at.tb_lineno})" if at is not None else ""))


def parts(model):
    """Ids of its modules and parameters."""
    found = set()
    for module in [model, *(module for _, module in walk(model))]:
        found.add(id(module))
        found.update(map(id, (object.__getattribute__(module, "__dict__").get("_parameters") or {}).values()))
    return found


def parameters(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


# ---- hooks

def told(live, method):
    """What a hook calls: this method of the looker."""
    def look(*args):
        looker = live.get("looker")
        if looker is not None:
            try:
                return getattr(looker, method)(*args)
            except Exception as problem:
                looker.fail(problem)
    return look


def arriving(live, parameter):
    """The same of one on a parameter, which is told its gradient."""
    def look(gradient):
        looker = live.get("looker")
        if looker is not None:
            try:
                return looker.arrive(parameter, gradient)
            except Exception as problem:
                looker.fail(problem)
    return look


OWN_FILE = told.__code__.co_filename


def is_our_hook(hook):
    behind = getattr(hook, "__self__", None) if type(hook) is BuiltinFunctionType else None
    return type(behind) is tuple and len(behind) == 2 and type(behind[1]) is FunctionType and \
        behind[1].__code__.co_filename == OWN_FILE


class Steps:
    """What optimizers find as "training": as hooks, around a step() that isn't a part of another one's."""

    def __init__(self, live):
        self.starts, self.end = _probe.hook(told(live, "begin")), _probe.hook(told(live, "end"))

    def begin(self, optimizer=None):
        if optimizer is None or is_inner():
            return None
        self.starts(optimizer)
        return True


def hook_all():
    module = kept["torch"].nn.modules.module
    module.register_module_forward_pre_hook(_probe.hook(told(live, "enter")))
    module.register_module_forward_hook(_probe.hook(told(live, "leave")))
    watch(live)


def stop():
    """Takes all hooks out. Any thread; may be called again."""
    looker = live.pop("looker", None)
    live.pop("training", None)
    module = kept["torch"].nn.modules.module
    for hooks in module._global_forward_pre_hooks, module._global_forward_hooks:
        for key, hook in list(hooks.items()):
            if is_our_hook(hook):
                hooks.pop(key, None)
    for _, _, _, handle in list(looker.known.values()) if looker is not None else ():
        if handle is not None:
            handle.remove()
    unwatch()


def inside():
    """Whether another thread is just running our code; where we have called a step(), we don't before it is back."""
    mine = get_ident()
    for thread, frame in sys._current_frames().items():
        innermost = True
        while frame is not None and thread != mine:
            code = frame.f_code
            if code.co_filename.startswith("<probefs nan") and (innermost or code is not CODE):
                return True
            frame, innermost = frame.f_back, False
    return False


# ---- what the agent calls

def add(number, model):
    """Returns (errno or 0, words)."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 2, "this program has not imported torch (yet)"
    if not hasattr(torch, "optim") or not hasattr(torch, "autograd") or not hasattr(torch, "nn"):
        return 11, "torch is just being imported: try again"
    kept["torch"] = torch
    if dynamo_is_used() or steps_are_compiled():
        return 95, "torch.compile() is used, and would compile it anew: then modules can't be looked at"
    if model is not None and not issubclass(type(model), torch.nn.Module):
        return 22, f"that is no torch.nn.Module, but of type {type(model).__name__}"
    looker = live.get("looker")
    if looker is not None:
        looker.add(number, model)
    else:
        looker = Looker()
        live.update(looker=looker, training=Steps(live))
        try:
            looker.add(number, model)
            hook_all()
        except BaseException:
            stop()
            raise
    return 0, "each result of a module, each gradient and each parameter behind a step is looked at"


def remove(number):
    looker = live.get("looker")
    if looker is not None:
        looker.remove(number)


def off():
    """Returns whether no thread is in our code any more; none comes in again."""
    if "torch" in kept:
        stop()
    sleep = sys.modules["time"].sleep
    for _ in range(LEAVE_TRIES):
        if not _probe.frames_are_safe():
            sleep(0.05)
            return False
        if not inside():
            return True
        sleep(0.001)
    return False
