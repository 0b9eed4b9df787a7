"""What modules are called.

A module bears the name that named_modules() of its model gives it; the model itself, which has none there, the
name of its class. A model is what is called outside of any other module, so a loss is one, too. Where there
are several, the names of the modules of all but the largest begin with the name of their model."""
from _weakref import ref

ROOTS_MAX = 64
MODULES_MAX = 20000  # of one model


def children(module):
    """{name: module or None}, without running any code of the program."""
    return object.__getattribute__(module, "__dict__").get("_modules") or {}


def walk(root):
    """(path, module) of all modules below root, each once, in the order of named_modules()."""
    seen, stack = set(), [("", root)]
    while stack and len(seen) < MODULES_MAX:
        path, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if path:
            yield path, module
        for name, child in reversed(list(children(module).items())):
            if child is not None:
                stack.append((f"{path}.{name}" if path else name, child))


class Labels:
    """Names for things that have only a class: `Adam`, and `Adam#2` for a second one. Doesn't keep them
    alive."""

    def __init__(self):
        self.labels = {}  # label -> weak reference

    def of(self, thing):
        for label, known in self.labels.items():
            if known() is thing:
                return label
        name = label = type(thing).__name__
        number = 1
        while label in self.labels and self.labels[label]() is not None:
            number += 1
            label = f"{name}#{number}"
        if len(self.labels) < ROOTS_MAX or label in self.labels:
            self.labels[label] = ref(thing)
        return label

    def things(self):
        found = [(label, known()) for label, known in self.labels.items()]
        return [(label, thing) for label, thing in found if thing is not None]


class Modules:
    def __init__(self):
        self.roots = Labels()
        self.names = {}  # id -> (weak reference, name)
        self.main = None

    def _put(self, module, name):
        if self.find(module) is None:
            self.names[id(module)] = ref(module), name

    def _add(self, label, root, below):
        main = self.main is not None and self.main() is root
        self._put(root, label)
        for path, module in below:
            self._put(module, path if main else f"{label}.{path}")

    def prepare(self):
        """Before a step that is recorded: modules may have come and gone."""
        found = [(label, root, list(walk(root))) for label, root in self.roots.things()]
        found.sort(key=lambda item: len(item[2]), reverse=True)
        main = self.main and self.main()
        if main is None and found:
            main = found[0][1]
            self.main = ref(main)
        found.sort(key=lambda item: item[1] is not main)
        self.names.clear()
        for item in found:
            self._add(*item)

    def find(self, module):
        known = self.names.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def name(self, module, parent):
        """Of a module that is called by the one with the name parent; None: by none."""
        known = self.find(module)
        if known is not None:
            return known
        if parent is not None:
            return f"{parent}.({type(module).__name__})"  # it is in no attribute of the model
        label = self.roots.of(module)
        self._add(label, module, walk(module))
        return label
