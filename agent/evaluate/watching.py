"""Where the value of a watched expression is kept.

find() says it as one of ("memory", owner, address, bytes, format)   numbers in a buffer; format as of struct, or
"version": of a whole tensor ("member", object, descriptor)              in one of its __slots__ ("list", list, index)
("dict", dict, key)                         also of the variables of modules ("attribute", object, name)
in what an instance has of its own ("local", code, name)                       a variable of the function that has this
code ("value", None, None)                       nothing that is known: it has to be evaluated again and again """
from _ast import Attribute, Call, Constant, Expression, Name, PyCF_ONLY_AST, Subscript, Tuple, UnaryOp
from _operator import is_

_probe.layout()  # here, where a frame of Python's runs

WIDTHS = 1, 2, 4, 8  # of a debug register
TORCH = {"torch.float64": "d", "torch.float32": "f", "torch.float16": "e", "torch.bfloat16": "bfloat16",
         "torch.int64": "q", "torch.int32": "i", "torch.int16": "h", "torch.int8": "b", "torch.uint8": "B",
         "torch.bool": "?", "torch.complex64": "complex64"}
DIRECT = set("?bBhHiIlLqQnNefd")


def frame_of(innermost, depth):
    """A frame of the thread that has this one, as the files count them. None: it has none; else (frame, how many it
    has), of which the first is None where there are fewer."""
    frame = without_agents(innermost)
    if frame is None or frame.f_code.co_filename.startswith(OWN_FILES):
        return None
    for level in range(FRAMES_MAX):
        if level == depth or frame is None:
            break
        frame = frame.f_back
    return frame, level


class Watched:
    """An expression, its parts compiled apart: what it belongs to (base), and which part of that it is.

    frame  in which its names are looked up; None: they are as eval sees them
    """
    framed = []  # those that have one

    def __init__(self, text, frame=None):
        self.frame, self.left = frame, False
        if frame is not None:
            self.framed.append(self)
        tree = compile(text.strip(), "<probefs watch>", "eval", PyCF_ONLY_AST, True).body
        if type(tree) is Call and type(tree.func) is Attribute and tree.func.attr == "item" and not tree.args:
            tree = tree.func.value  # tensor.item()
        self.code = compiled(tree)
        self.kind = type(tree)
        self.name = self.base = self.index = None
        if self.kind is Name:
            self.name = tree.id
        elif self.kind is Attribute:
            self.name, self.base = tree.attr, compiled(tree.value)
        elif self.kind is Subscript:
            self.base = compiled(tree.value)
            self.index = compiled(tree.slice)
        self.plain = is_plain(tree)
        self.versioned = False

    def value(self, frame=None):
        """What it is now, in a frame (None: as eval sees it)."""
        names = self.names(frame)
        try:
            value = eval(self.code, names.home, names)
            return Version(value, value._version, "", False) if self.versioned and is_tensor(value) else value
        finally:
            names.release()

    def names(self, frame):
        if self.left:
            raise NameError("the frame has returned")
        if self.frame is not None:
            return Names(self.frame.f_globals, self.frame, None, kept=self.kept())
        return resolve(0, 0, 0, None) if frame is None else Names(frame.f_globals, frame, frame.f_back)

    def kept(self):
        """How many of these have its frame."""
        return sum(each.frame is self.frame for each in self.framed)

    def is_there(self, innermost):
        """Whether its frame hasn't returned yet; innermost: of its thread, or None."""
        frame = innermost
        while frame is not None:
            if frame is self.frame:
                return True
            frame = frame.f_back
        # one that waits for its next turn is on no stack, but its generator, or greenlet, has it
        return sys.getrefcount(self.frame) > self.kept() + 1  # the argument

    def leave(self):
        """Lets go of the frame."""
        self.framed[:] = [each for each in self.framed if each is not self]
        self.frame, self.left = None, True

    def find(self):
        names = self.names(None)
        try:
            value = eval(self.code, names.home, names)  # it has one
            self.versioned = False
            element = single(value)
            if element is not None:
                return element
            if is_tensor(value):
                again = eval(self.code, names.home, names)  # tensor.data has another one each time
                counter = counter_of(value)
                if counter and counter == counter_of(again):
                    self.versioned = True
                    return "memory", value, counter, 4, "version"
            if self.kind is Name:
                return of_name(self.name, names)
            if self.base is None:
                return "value", None, None
            base = eval(self.base, names.home, names)
            if self.kind is Attribute:
                return of_attribute(base, self.name)
            return of_item(base, eval(self.index, names.home, names))
        finally:
            names.release()


def compiled(tree):
    return compile(Expression(tree), "<probefs watch>", "eval", 0, True)


def is_plain(tree):
    """Whether evaluating it runs no code but that of attributes and items."""
    if type(tree) is Name or type(tree) is Constant:
        return True
    if type(tree) is Attribute:
        return is_plain(tree.value)
    if type(tree) is Tuple:
        return all(map(is_plain, tree.elts))
    if type(tree) is UnaryOp:
        return type(tree.operand) is Constant
    return type(tree) is Subscript and is_plain(tree.value) and is_plain(tree.slice)


def of_name(name, names):
    if names.own is not None and names.owns(name):
        return of_variable(names.own, name)
    if name in names.home:
        return "dict", names.home, name
    frame = names.outer
    while frame is not None:
        try:
            names.variable(frame, name)
        except KeyError:
            frame = frame.f_back
            continue
        return of_variable(frame, name)
    return "value", None, None


def of_variable(frame, name):
    if frame.f_code.co_flags & CO_OPTIMIZED:
        return "local", frame.f_code, name
    scope = frame.f_locals
    return ("dict", scope, name) if type(scope) is dict else ("value", None, None)


def of_attribute(base, name):
    kind = type(base)
    if isinstance(base, type(sys)):  # a module
        scope = vars(base)
        return ("dict", scope, name) if type(scope) is dict and name in scope else ("value", None, None)
    if isinstance(base, type):
        return "value", None, None
    for each in kind.__mro__:
        found = each.__dict__.get(name)
        if found is None:
            continue
        if type(found) is Member:
            return "member", base, found
        size, offset = getattr(found, "size", None), getattr(found, "offset", None)
        if type(found).__name__ == "CField" and type(size) is int and size in WIDTHS:
            return of_field(base, offset, size)
        if hasattr(type(found), "__set__"):
            return "value", None, None
        break
    return "attribute", base, name


def of_field(base, offset, size):
    """Of a ctypes structure; whatever is in it, its bytes are what is compared."""
    address, length, *_ = _probe.buffer(base)
    inside = 0 <= offset and offset + size <= length
    return ("memory", base, address + offset, size, "bytes") if inside else ("value", None, None)


class Slotted:
    __slots__ = "member",


Member = type(Slotted.member)


def of_item(base, index):
    kind = type(base)
    if kind is list and hasattr(type(index), "__index__"):
        index = index.__index__()
        return "list", base, index + len(base) if index < 0 else index
    if kind is dict:
        return "dict", base, index
    indices = index if type(index) is tuple else (index,)
    if not all(hasattr(type(each), "__index__") and type(each) is not bool for each in indices):
        return "value", None, None
    if is_tensor(base):
        return single(base[index]) or ("value", None, None)
    return of_buffer(base, [each.__index__() for each in indices]) or ("value", None, None)


def of_buffer(base, indices):
    """An element of what has a buffer, numpy's arrays among them."""
    if isinstance(base, (str, bytes, tuple)):
        return None
    try:
        address, length, size, format, shape, strides = _probe.buffer(base)
    except (TypeError, BufferError, ValueError):
        return None
    if len(indices) != len(shape) or size not in WIDTHS:
        return None
    for index, count, stride in zip(indices, shape, strides):
        index += count if index < 0 else 0
        if not 0 <= index < count:
            return None
        address += index * stride
    return memory(base, address, size, format)


def memory(owner, address, size, format):
    if size not in WIDTHS or address % size:
        return None
    if format == "Zf":
        format = "complex64"
    elif format not in TORCH.values():
        format = format.lstrip("@=<") if not format.startswith((">", "!")) or size == 1 else "bytes"
        format = format if format in DIRECT else "bytes"
    return "memory", owner, address, size, format


def is_tensor(value):
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return isinstance(kind, type) and isinstance(value, kind)


def single(value):
    """The only element of a tensor in the CPU's memory, or of an array of numpy; None: it isn't one."""
    if is_tensor(value):
        if value.device.type != "cpu" or str(value.layout) != "torch.strided" or value.numel() != 1:
            return None
        return memory(value, value.data_ptr(), value.element_size(), TORCH.get(str(value.dtype), "bytes"))
    if is_array(value) and value.size == 1:
        return of_buffer(value, [0] * value.ndim)
    return None


class Version:
    """What a tensor is after so many changes in place: the operator that made the last one ("": not known), and the
    norm of its values, if they were read before the next change; None: they weren't."""
    __slots__ = "tensor", "version", "operator", "norm"

    def __init__(self, tensor, version, operator, last):
        self.tensor, self.version, self.operator = id(tensor), version, operator
        self.norm = norm_of(tensor) if last else None

    def __repr__(self):
        norm = "" if self.norm is None else f", norm {self.norm:.9g}"
        return f"version {self.version}" + (f" by {self.operator}" if self.operator else "") + norm


NORM_BYTES_MAX = 16 << 20  # of a larger one the norm isn't computed: at each change that would be too much
FLOATS = {"torch.float64": "d", "torch.float32": "f", "torch.bfloat16": "b"}


def norm_of(tensor):
    """Of one that lies in one piece in main memory, without running anything of PyTorch that computes."""
    format, size = FLOATS.get(str(tensor.dtype)), tensor.numel() * tensor.element_size()
    if not format or tensor.device.type != "cpu" or size > NORM_BYTES_MAX or not tensor.is_contiguous():
        return None
    squares = _probe.squares(tensor.data_ptr(), size, format)
    return None if squares is None else squares ** 0.5


def counter_at(tensor):
    """Where TensorImpl (c10/core/TensorImpl.h) has the number of changes: it has, behind its counts, the storage, what
    autograd knows, names, and a pointer to the counter, and close to that the pointer back to the Python object. A
    thing that is counted begins with a table of functions and two counts, which are one word in newer versions. None:
    it is otherwise."""
    for offset in 24, 16:
        impl = _probe.word(id(tensor) + offset)
        words = [_probe.word(impl + 8 * i) for i in range(12)] if impl and impl % 8 == 0 else [None]
        backs = [i for i, word in enumerate(words) if word is not None and word & ~1 == id(tensor)]
        if None in words or not backs:
            continue
        counter = words[counts(words[1]) + 3]
        head = _probe.word(counter + 8) if counter % 8 == 0 else None
        if backs[0] - counts(words[1]) in (4, 5) and head:
            return counter + 8 * counts(head)
    return None


def counts(word):
    """Where what is counted has the first word behind its counts."""
    return 2 if word >> 32 else 3


def counter_of(tensor):
    """The same, proven: of a tensor of ours it counts what is done to it, and of this one it says what PyTorch says."""
    if "counter" not in proven:
        proven["counter"] = is_counted()
    try:
        at = counter_at(tensor) if proven["counter"] else None
        return at if at and _probe.word(at) & 0xFFFFFFFF == tensor._version else None
    except RuntimeError:  # of inference: it has none
        return None


def is_counted():
    one = sys.modules["torch"].zeros(2, device="cpu")
    for count in range(4):
        at = counter_at(one)
        if not at or _probe.word(at) & 0xFFFFFFFF != count:
            return False
        one.zero_()
    return True


proven = {}


def shown(format, bits, size):
    """The number that some bytes of memory are."""
    data = bits.to_bytes(8, "little")[:size]
    if format == "bfloat16":
        data, format = b"\0\0" + data, "f"
    if format == "complex64":
        return complex(*memoryview(data).cast("f"))
    if format == "e":
        return half(bits)
    if format in DIRECT:
        return memoryview(data).cast(format)[0]
    return bits


def half(bits):
    """A number of 16 bits, IEEE 754: memoryview knows it in some versions only."""
    sign, exponent, fraction = -1.0 if bits & 0x8000 else 1.0, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return float("nan") if fraction else sign * float("inf")
    if exponent == 0:
        return sign * fraction * 2.0 ** -24
    return sign * (1024 + fraction) * 2.0 ** (exponent - 25)


COMPARED = {int, float, complex, str, bytes, bool}
COPIED_MAX = 1000        # items
COPIED_BYTES_MAX = 8192


def changeable(value):
    """Whether there is something in it that can be changed without its being another object."""
    kind = type(value)
    return (kind in (list, dict, set, bytearray) or kind.__module__ == "array" and kind.__name__ == "array"
            or is_array(value) or is_tensor(value))


def copied(value):
    """What tells later whether a value was changed in place: a copy of one that isn't too large, else itself."""
    kind = type(value)
    if kind is Version:
        return value
    if kind in (list, dict, set, bytearray):
        return kind(value) if len(value) <= COPIED_MAX else value
    if kind.__module__ == "array" and kind.__name__ == "array":
        return value[:] if len(value) <= COPIED_MAX else value
    if is_array(value):
        return value.copy() if value.nbytes <= COPIED_BYTES_MAX else value
    if is_tensor(value) and value.device.type == "cpu" and value.numel() <= COPIED_MAX:
        return value.detach().clone()
    return value


def same(old, new):
    """Whether it makes no difference that there is this value now, and not the one that was copied before."""
    if old is new:
        return True
    kind = type(old)
    if kind is Version is type(new):
        return (old.tensor, old.version) == (new.tensor, new.version)
    if kind is not type(new) and not (is_tensor(old) and is_tensor(new)):
        return False
    if kind in COMPARED:
        return old == new or old != old and new != new
    if kind in (list, dict, set):
        return len(old) == len(new) and all(map(is_, flat(old), flat(new)))
    if kind is bytearray:
        return old == new
    if kind.__module__ == "array" and kind.__name__ == "array":
        return old.typecode == new.typecode and old.tobytes() == new.tobytes()
    if is_array(old):
        return old.dtype == new.dtype and old.shape == new.shape and old.tobytes() == new.tobytes()
    if is_tensor(old) and old.device.type == new.device.type == "cpu" and new.numel() <= COPIED_MAX:
        return old.dtype == new.dtype and old.shape == new.shape and same_bytes(old, new)
    return False


def same_bytes(old, new):
    old, new = (each.detach().contiguous().view(-1) for each in (old, new))
    try:
        return old.numpy().tobytes() == new.numpy().tobytes()
    except (TypeError, RuntimeError):  # numpy has no such type, or isn't there
        return old.tolist() == new.tolist()


def flat(value):
    if type(value) is set:
        return sorted(value, key=id)
    return value if type(value) is list else [each for item in value.items() for each in item]


def is_array(value):
    kind = getattr(sys.modules.get("numpy"), "ndarray", None)
    return isinstance(kind, type) and isinstance(value, kind)
