"""One step that is recorded: each call of a module, forward and backward.

Hooks on all modules tell when a call begins and ends. They look at the tensors that go in and out, and neither
replace nor keep them: what is hooked is the node of the autograd graph behind a tensor, which tells when the
gradient has come that far. So the program computes what it would have computed, to the last bit.

The engine runs the nodes in the opposite order of their making. The backward pass of a call therefore is one
stretch of time, from the gradient of its outputs until that of its inputs is complete, or until the backward pass
of a call begins that was made earlier. A second backward pass through the same call isn't told, nor what modules do in
another thread than the one that trains: there the GPU's backward pass recomputes what was not kept."""
import sys
from _thread import get_ident
from time import perf_counter
from types import FunctionType

CALLS_MAX = 10000  # that are recorded of one step
WORKS_MAX = 1000   # collectives that are waited for at once
COLLECTIVES = ("allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "_allgather_base",
               "allgather_coalesced", "allgather_into_tensor_coalesced", "gather", "scatter", "reduce_scatter",
               "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base", "send", "recv",
               "recv_anysource", "barrier")  # methods of a process group


def nodes(value):
    """(node, whether it is that of a base) for where the gradients of the tensors in value arrive. A view
    whose storage was written to since gets its node only when it is used: earlier would be another order of nodes.
    One that is written to later goes another way, but by its base's node."""
    found = []
    for tensor in tensors(value):
        if not tensor.requires_grad:
            continue
        view = tensor._is_view()
        if not (view and tensor._version):
            add(found, tensor.grad_fn, False)
        if view:
            add(found, tensor._base.grad_fn, True)
    return found


def add(found, node, base):
    if node is not None and not any(node is other for other, _ in found):
        found.append((node, base))


def unseen_nodes(value):
    """The same; a TorchFunctionMode of the program doesn't see that its tensors are looked at."""
    C = kept["torch"]._C
    if hasattr(C, "_len_torch_function_stack"):  # since 2.0
        if not C._len_torch_function_stack():
            return nodes(value)
        with C.DisableTorchFunction():
            return nodes(value)
    mode = getattr(C, "_get_torch_function_mode", None)
    return nodes(value) if mode is None or mode() is None else []


def unhook():
    """Takes our hooks on all modules out, however they came there: a handler of a signal may have raised something
    just when we put them in or took them out."""
    module = kept["torch"].nn.modules.module
    for hooks in module._global_forward_pre_hooks, module._global_forward_hooks:
        for key, hook in list(hooks.items()):
            if type(hook) is FunctionType and hook.__code__.co_filename == OWN_FILE:
                hooks.pop(key, None)


OWN_FILE = unhook.__code__.co_filename


def take_out(handle):
    """A hook on a node, by what registering it gave. May be called again."""
    hooks = handle.hooks_dict_ref()
    if hooks is not None:
        hooks.pop(handle.id, None)


def timed(original, live, stage):
    """Calls original, a method of the program's; knows nothing of our namespace, which may have been emptied when that
    returns. stage: as in the rows; "wait" for the end of a collective."""
    def call(*args, **kwargs):
        step, mark = live.get("step"), None
        if step is not None:
            try:
                mark = step.before(stage, original, args)
            except Exception as problem:
                step.fail(problem)
        result = original(*args, **kwargs)
        if mark is not None and live.get("step") is step:
            try:
                step.after(mark, result)
            except Exception as problem:
                step.fail(problem)
        return result
    return call


TIMED = timed(None, None, None).__code__


def put_back(one, name, original, ours):
    """What stood in a class before, if ours is there now."""
    if one.__dict__.get(name) is ours:
        setattr(one, name, original)


def methods():
    """(class, name, stage) of what is timed beside the calls of modules, as far as the program has imported it."""
    loader = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
    if isinstance(loader, type):
        yield loader, "__next__", "loader"
    c10d = sys.modules.get("torch._C._distributed_c10d")
    for one in getattr(c10d, "ProcessGroup", None), getattr(c10d, "Work", None):
        if isinstance(one, type):
            for name in COLLECTIVES if one.__name__ != "Work" else ("wait",):
                yield one, name, "collective" if one.__name__ != "Work" else "wait"


class Call:
    __slots__ = "name", "parent", "order", "last", "seq", "start", "sources", "awaited", "began", "ended"

    def __init__(self, name, parent, order, seq):
        self.name, self.parent, self.order = name, parent, order
        self.seq = seq       # None: it isn't looked at, only what it calls may be
        self.last = None     # order of the last call made by it; None: it hasn't returned
        self.sources = ()    # nodes of its inputs, until it returns
        self.awaited = 0     # of these, whose gradient isn't complete
        self.began = None    # its backward pass
        self.ended = False


class Step:
    """live: as in trace.py. silent: only for the names. layers: of so many modules one is looked at, another one in
    each step that is recorded, which is the turn-th one on all ranks."""

    def __init__(self, clock, modules, live, fail, silent, layers, turn):
        self.layers, self.turn = layers, turn
        self.clock, self.modules, self.live, self.fail, self.silent = clock, modules, live, fail, silent
        self.thread = get_ident()
        self.stack = []    # (module, Call or None) that have not returned
        self.open = []     # calls whose backward pass has begun and not ended
        self.armed = False # the engine tells us of the end of the backward pass
        self.handles = []  # of our hooks on nodes
        self.replaced = [] # (class, name, what stood there, ours)
        self.works = []    # (what a collective returned, seq, name, when it began)
        self.calls = self.cut = 0
        self.seqs = 1      # 0 is the whole step's

    def take_seq(self):
        seq = self.seqs
        self.seqs += 1
        return seq

    def row(self, seq, name, stage, begin, end):
        if not self.silent:
            self.clock.row(seq, name, stage, begin, end)

    def chooses(self, name):
        """Whether a module is looked at: the same ones on all ranks."""
        return self.layers == 1 or (sum(map(ord, name)) + self.turn) % self.layers == 0

    # ---- forward

    def enter(self, module, args):
        if get_ident() != self.thread:
            return
        at = perf_counter()
        if self.calls >= CALLS_MAX:
            self.cut += 1
            self.stack.append((module, None))
        else:
            parent = next((call for _, call in reversed(self.stack) if call is not None), None)
            name = self.modules.name(module, parent.name if parent is not None else None)
            chosen = self.chooses(name)
            call = Call(name, parent, self.calls, self.take_seq() if chosen else None)
            self.calls += 1
            self.stack.append((module, call))
            if chosen:
                self.watch_inputs(call, args)
            self.clock.spent += perf_counter() - at
            call.start = self.clock.now()

    def leave(self, module, output):
        if get_ident() != self.thread:
            return
        at = perf_counter()
        now = self.clock.now(at)
        for depth in range(len(self.stack) - 1, -1, -1):
            if self.stack[depth][0] is module:
                break
        else:
            return  # it was called before we looked
        call = self.stack[depth][1]
        del self.stack[depth:]  # calls that raised didn't tell
        if call is not None:
            call.last = self.calls - 1
        if call is not None and call.seq is not None:
            self.row(call.seq, call.name, "forward", call.start, now)
            self.watch_outputs(call, output)
        self.clock.spent += perf_counter() - at

    # ---- the loader, and collectives

    def before(self, stage, original, args):
        """None: it isn't recorded."""
        if get_ident() != self.thread or self.calls >= CALLS_MAX:
            return None
        if stage == "wait":
            found = [work for work in self.works if work[0] is args[0]]
            return (stage, *found[0]) if found else None
        if stage == "loader":
            name = type(getattr(args[0], "_dataset", args[0])).__name__
        else:
            name = original.__name__.strip("_")
        self.calls += 1
        return stage, None, self.take_seq(), name, self.clock.now()

    def after(self, mark, result):
        at = perf_counter()
        stage, work, seq, name, begun = mark
        if stage == "loader" or stage == "collective" and (result is None or len(self.works) >= WORKS_MAX):
            self.row(seq, name, stage, begun, self.clock.now(at))
        elif stage == "collective":
            self.works.append((result, seq, name, begun))
        else:
            self.works = [one for one in self.works if one[0] is not work]
            self.row(seq, name, "collective", begun, self.clock.now(at))
        self.clock.spent += perf_counter() - at

    # ---- the graph

    def watch_inputs(self, call, args):
        if not kept["torch"].is_grad_enabled():
            return
        call.sources = unseen_nodes(args)
        for node, base in call.sources:
            if not base:
                call.awaited += 1
                self.watch(node, self.ready, call)

    def watch_outputs(self, call, output):
        sources, call.sources = call.sources, ()
        for node, _ in unseen_nodes(output):
            if not any(node is source for source, _ in sources):  # else it returned what it got
                self.watch(node, self.begin, call)

    def watch(self, node, tell, call):
        live, fail, mine = self.live, self.fail, self

        def hook(*gradients):
            if live.get("step") is mine:
                try:
                    tell(call)
                except Exception as problem:
                    fail(problem)
        register = getattr(node, "register_prehook", None)  # since 1.13
        if register is not None:
            handle = register(hook)
            self.handles.append(handle)
            if live.get("step") is not mine:  # it has ended meanwhile, and may not have seen this one
                take_out(handle)

    # ---- backward

    def begin(self, call):
        """The gradient of an output of it has come."""
        at = perf_counter()
        if call.began is not None:
            return
        now = self.clock.now(at)
        if not self.armed:
            self.arm()
        for other in reversed(self.open[:]):
            if other.order > call.last:
                self.end(other, now)
        beginning = []
        while call is not None and call.began is None and call.last is not None:
            beginning.append(call)
            call = call.parent
        for one in reversed(beginning):
            one.began = now
            if one.seq is not None:
                one.seq = self.take_seq()
            self.open.append(one)
        self.clock.spent += perf_counter() - at

    def ready(self, call):
        """The gradient of one of its inputs is complete."""
        at = perf_counter()
        call.awaited -= 1
        if call.awaited == 0 and call.began is not None and not call.ended:
            now = self.clock.now(at)
            for other in reversed(self.open[:]):
                if call.order <= other.order <= call.last:
                    self.end(other, now)
        self.clock.spent += perf_counter() - at

    def end(self, call, now):
        if not call.ended:
            call.ended = True
            self.open.remove(call)
            if call.seq is not None:
                self.row(call.seq, call.name, "backward", call.began, now)

    def arm(self):
        live, fail, mine = self.live, self.fail, self

        def done():  # nobody can take it back
            if live.get("step") is mine:
                try:
                    mine.done()
                except Exception as problem:
                    fail(problem)
        kept["torch"].autograd.Variable._execution_engine.queue_callback(done)
        self.armed = True

    def done(self):
        """The backward pass has ended."""
        at = perf_counter()
        self.armed = False
        now = self.clock.now(at)
        for call in reversed(self.open[:]):
            self.end(call, now)
        self.clock.spent += perf_counter() - at

    # ---- its beginning and end

    def install(self):
        live = self.live

        def entering(module, args):
            step = live.get("step")
            if step is not None:
                try:
                    step.enter(module, args)
                except Exception as problem:
                    step.fail(problem)

        def leaving(module, args, output):
            step = live.get("step")
            if step is not None:
                try:
                    step.leave(module, output)
                except Exception as problem:
                    step.fail(problem)
        unhook()
        live["step"] = self
        module = kept["torch"].nn.modules.module
        module.register_module_forward_pre_hook(entering)
        module.register_module_forward_hook(leaving)
        for one, name, stage in methods():
            original = one.__dict__.get(name)
            if callable(original) and getattr(original, "__code__", None) is not TIMED:
                ours = timed(original, live, stage)
                self.replaced.append((one, name, original, ours))
                setattr(one, name, ours)
                if live.get("step") is not self:  # another thread may not have found this there
                    put_back(one, name, original, ours)
        if live.get("step") is None:
            self.remove()

    def remove(self):
        """Takes all hooks out. May be called again, and by another thread."""
        self.live.pop("step", None)
        unhook()
        replaced, self.replaced = self.replaced, []
        for one in replaced:
            put_back(*one)
        self.works = []
        handles, self.handles = self.handles, []
        for handle in handles:
            take_out(handle)
