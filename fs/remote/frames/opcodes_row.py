"""Prints the row of opcodes_table.h of the interpreter that runs it: 3.8 to 3.15, oldest first, make the table.

What each opcode is to instructions.h, a letter of its enum instruction_kind, by what the module dis knows."""
import dis
import opcode
import sys

KINDS = {
    "EXTENDED_ARG": "e", "LOAD_FAST": "f", "LOAD_FAST_CHECK": "f", "LOAD_FAST_BORROW": "f",
    "LOAD_FAST_LOAD_FAST": "F", "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "F",
    "STORE_FAST": "s", "DELETE_FAST": "s", "LOAD_FAST_AND_CLEAR": "s", "STORE_FAST_LOAD_FAST": "S",
    "STORE_FAST_STORE_FAST": "T", "LOAD_DEREF": "d", "STORE_DEREF": "D", "DELETE_DEREF": "D", "LOAD_GLOBAL": "g",
    "LOAD_NAME": "n", "STORE_NAME": "N", "DELETE_NAME": "N", "STORE_GLOBAL": "N", "DELETE_GLOBAL": "N",
    "LOAD_ATTR": "a", "LOAD_METHOD": "a", "STORE_ATTR": "A", "DELETE_ATTR": "A",
    "PUSH_NULL": "p", "PRECALL": "p", "CALL": "c", "CALL_METHOD": "c", "SETUP_WITH": "w",
    "SETUP_FINALLY": "x", "SETUP_ASYNC_WITH": "x", "RETURN_VALUE": "r", "RETURN_CONST": "r", "RAISE_VARARGS": "r",
    "RERAISE": "r",
}
ALWAYS = {"JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
HIDES = {"CACHE", "RESERVED", "ENTER_EXECUTOR", "INTERPRETER_EXIT", "INSTRUMENTED_LINE", "INSTRUMENTED_INSTRUCTION",
         "TRACE_RECORD"}  # what they stand for isn't in the bytecode
opmap = getattr(dis, "_all_opmap", opcode.opmap)
deopt = getattr(dis, "deoptmap", {})
caches = getattr(opcode, "_inline_cache_entries", {})


def kind(name):
    if name in HIDES:
        return "?"
    jumps = opmap[name] in dis.hasjrel or opmap[name] in dis.hasjabs
    if name in KINDS or not jumps:
        return KINDS.get(name, ".")
    letter = "k" if opmap[name] in dis.hasjabs else "b" if "BACKWARD" in name or name == "END_ASYNC_FOR" else "j"
    return letter.upper() if name in ALWAYS else letter


def cache_entries(name):
    return caches.get(name, 0) if hasattr(caches, "get") else caches[opmap[name]]


kinds, sizes = ["?"] * 256, ["0"] * 256
for name, number in opmap.items():
    name = deopt.get(name, name)
    if name not in HIDES and name.startswith("INSTRUMENTED_"):
        name = name[len("INSTRUMENTED_"):]
    if number < 256:
        kinds[number], sizes[number] = kind(name), f"{cache_entries(name):x}"
row = ",\n ".join("\n ".join(f'"{"".join(column[i:i + 64])}"' for i in range(0, 256, 64)) for column in (kinds, sizes))
print(f"{{0x03{sys.version_info[1]:02x}0000,\n {row}}},")
