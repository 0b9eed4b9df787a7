"""The collectives of torch.distributed: each call of a process group's method is a row, which is open until the result
was waited for; and how many PyTorch has counted in each group, those that C++ calls included.

What stands in the place of PyTorch's methods knows of us only what `live` gives it, for no longer than one call of it
takes: that may be emptied while a thread waits in a collective. Nor do we keep a group alive."""
import sys
from _weakref import ref

GROUPS_MAX = 64    # that are counted
BEGIN, BEGIN_BETWEEN, BEGUN, FAILED, WAITED = range(5)  # in live
SIZES = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2,
         "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16}  # before 2.1
OPERATIONS = ("allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "_allgather_base",
              "allgather_coalesced", "allgather_into_tensor_coalesced", "gather", "scatter", "reduce_scatter",
              "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base", "send", "recv",
              "recv_anysource", "barrier", "monitored_barrier")  # methods of a process group

live = []     # what _probe.recording() gives, in that order, while this is recorded
replaced = [] # (class, name, what stood there, ours)
known = {}    # address of a process group -> what find() says
counted = {}  # the same -> (number, ticket of its row, since when)


def function_of(original):
    """What to call for it: an extension's function by itself, without what makes a method of it in its class."""
    return original.__func__ if type(original).__name__ == "instancemethod" else original


def recorded(original, operation, live):
    """Calls original, a method of a process group. Where there are no keywords none are handed on: pybind11 would look
    for its own among them."""
    begin, begun, failed = BEGIN_BETWEEN if operation in ("send", "recv") else BEGIN, BEGUN, FAILED
    bare = function_of(original)

    def call(*args, **kwargs):
        try:
            ticket = live[begin](operation, args)
        except IndexError:  # it is over
            ticket = None
        try:
            work = bare(*args, **kwargs) if kwargs else bare(*args)
        except BaseException:
            if ticket is not None:
                try:
                    live[failed](ticket)
                except IndexError:
                    pass
            raise
        if ticket is not None:
            try:
                live[begun](work, ticket)
            except IndexError:
                pass
        return work
    return call


def awaited(original, live):
    """Calls original, Work.wait()."""
    bare, waited = function_of(original), WAITED

    def wait(*args, **kwargs):
        try:
            return bare(*args, **kwargs) if kwargs else bare(*args)
        finally:
            try:
                live[waited](args)
            except IndexError:
                pass
    return wait


def module():
    return sys.modules.get("torch.distributed.distributed_c10d")


def find(group):
    """(name, size, rank, what gives the number of its last one, ranks among all, reference) of a group, as far as is
    known."""
    found = known.get(id(group))
    if found is None:
        c10d = module()
        address = id(group)
        name = getattr(c10d, "_pg_names", {}).get(group)
        ranks = getattr(c10d, "_pg_group_ranks", {}).get(group) or {}
        everybody = [of_all for of_all, _ in sorted(ranks.items(), key=lambda pair: pair[1])]
        number = function_of(getattr(type(group), "_get_sequence_number_for_group", None))
        found = (name, group.size(), group.rank(), number, everybody,
                 ref(group, lambda _: (known.pop(address, None), counted.pop(address, None))))
        if name is not None and len(known) < GROUPS_MAX:  # else it is just being made
            known[address] = found
    return found


def facts(torch):
    """What _probe.recording() knows groups by, and tensors: their classes, that which has the shape and the dtype, and
    {dtype: (name, bytes)}."""
    dtypes = {}
    for name in dir(torch):
        dtype = getattr(torch, name)
        if type(dtype) is torch.dtype:
            name = str(dtype).rpartition(".")[2]
            dtypes[dtype] = name, getattr(dtype, "itemsize", SIZES.get(name))
    base = next(one for one in torch.Tensor.__mro__ if "shape" in vars(one))
    return find, known, torch.Tensor, torch.nn.Parameter, base, dtypes


def replace(one, name, make):
    original = one.__dict__.get(name)
    if callable(original):
        ours = make(original)
        replaced.append((one, name, original, ours))
        setattr(one, name, ours)


def on():
    """Returns (errno or 0, words)."""
    torch = sys.modules.get("torch")
    bindings = sys.modules.get("torch._C._distributed_c10d")
    if torch is None or bindings is None or module() is None:
        return 2, "this program has not imported torch.distributed (yet)"
    if not hasattr(torch, "nn") or not hasattr(module(), "_pg_map"):
        return 11, "torch is just being imported: try again"
    if live:
        return 0, read_flight()[2:]
    off()
    live.extend(_probe.recording(facts(torch)))
    for name in OPERATIONS:
        replace(bindings.ProcessGroup, name, lambda original: recorded(original, name.strip("_"), live))
    if hasattr(bindings, "Work"):
        replace(bindings.Work, "wait", lambda original: awaited(original, live))
    sample()
    return 0, "those that C++ calls itself are only counted" + read_flight()


def off():
    live.clear()
    while replaced:
        one, name, original, ours = replaced.pop()
        if one.__dict__.get(name) is ours:
            setattr(one, name, original)
    known.clear()
    counted.clear()
    flight.clear()


def checks_first():
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: ranks wait for each other before PyTorch counts, so that all have the same
    number."""
    level = getattr(sys.modules.get("torch.distributed"), "get_debug_level", None)
    return level is not None and level().name == "DETAIL"


def sample():
    """Looks how far each group has come."""
    write_flight()
    if checks_first():
        return
    for group in list(getattr(module(), "_pg_map", ()))[:GROUPS_MAX]:
        name, size, rank, number, *_ = find(group)
        try:
            seq = number(group) if number is not None else None
        except RuntimeError:  # it has not counted yet
            seq = None
        if seq is not None and name is not None:
            before, ticket, since = counted.get(id(group), (None, None, None))
            counted[id(group)] = (seq, *_probe.count(ticket, name, size, rank, seq, since if seq == before else None))
