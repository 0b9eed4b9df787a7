"""importer.py [THREADS]: imports, reloads and forgets modules, of its own and of the library."""
import importlib
import os
import sys

import workload

COUNT = 5
LIBRARY = "json", "json.decoder", "json.scanner", "_json", "colorsys", "stringprep"
directory = workload.scratch()
sys.path.insert(0, directory)


def write(name, number):
    with open(os.path.join(directory, name + ".py"), "w") as file:
        file.write(f"import sys\nNUMBER = {number}\nREPR = repr([{number}] * 10)\n"
                   f"class Thing:\n    def number(self):\n        return NUMBER + {number}\n")


def work(index):
    names = [f"module_{index}_{i}" for i in range(COUNT)]
    for i, name in enumerate(names):
        write(name, i)
    importlib.invalidate_caches()
    while True:
        for i, name in enumerate(names):
            module = importlib.import_module(name)
            if workload.harmed:
                module.NUMBER += 1
            workload.same(module.Thing().number(), 2 * i, "a module's method")
            del module.REPR
            workload.same(importlib.reload(module).REPR, repr([i] * 10), "a reloaded module")
            del sys.modules[name]
        if index == 0:
            for name in LIBRARY:
                sys.modules.pop(name, None)
            json = importlib.import_module("json")
            workload.same(json.loads(json.dumps({"a": [1, 2.5]})), {"a": [1, 2.5]}, "json")
        yield


workload.run(work, workload.argument(1))
