"""What a process shows as its agent's record (agent/wire/proto.h), to be filled with what one likes."""
import ctypes
import os


class Place(ctypes.Structure):
    _fields_ = [("change", ctypes.c_uint32), ("on", ctypes.c_uint32), ("fd", ctypes.c_int32),
                ("error", ctypes.c_int32), ("inode", ctypes.c_uint64), ("size", ctypes.c_uint64),
                ("rate", ctypes.c_double)]


class Watch(ctypes.Structure):
    _fields_ = [("change", ctypes.c_uint32), ("id", ctypes.c_uint32), ("address", ctypes.c_uint64),
                ("length", ctypes.c_uint32), ("route", ctypes.c_uint32)]


class Record(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint64), ("version", ctypes.c_uint32), ("size", ctypes.c_uint32),
                ("state", ctypes.c_int32), ("pid", ctypes.c_int32), ("channel", ctypes.c_int32),
                ("origin", ctypes.c_int32), ("channel_tid", ctypes.c_int32),
                ("python_tid", ctypes.c_int32), ("handle", ctypes.c_uint64),
                ("generation", ctypes.c_uint64), ("rings", Place * 16), ("stops", ctypes.c_uint64),
                ("stopped", ctypes.c_uint32), ("on_crash", ctypes.c_uint32), ("trap", ctypes.c_uint32),
                ("zero", ctypes.c_uint32), ("own", ctypes.c_uint64), ("evals", ctypes.c_uint64),
                ("ring_bytes", ctypes.c_uint64), ("watches", Watch * 4), ("allocations", ctypes.c_uint64),
                ("samples", ctypes.c_uint64)]


def load(library=os.path.join(os.path.dirname(os.path.abspath(__file__)), "probing-imposter.so")):
    """The record of a library (imposter.c); the one beside this file unless said."""
    return Record.in_dll(ctypes.CDLL(library), "probe_agent_record")
