"""What a process shows as its agent's record (agent/proto.h), to be filled with what one likes. The library lies
beside this file."""
import ctypes
import os

_here = os.path.dirname(os.path.abspath(__file__))
_library = ctypes.CDLL(os.path.join(_here, "probing-imposter.so"))


class Place(ctypes.Structure):
    _fields_ = [("change", ctypes.c_uint32), ("on", ctypes.c_uint32), ("fd", ctypes.c_int32),
                ("error", ctypes.c_int32), ("inode", ctypes.c_uint64), ("size", ctypes.c_uint64),
                ("rate", ctypes.c_double)]


class Record(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint64), ("version", ctypes.c_uint32), ("size", ctypes.c_uint32),
                ("state", ctypes.c_int32), ("pid", ctypes.c_int32), ("channel", ctypes.c_int32),
                ("origin", ctypes.c_int32), ("channel_tid", ctypes.c_int32),
                ("python_tid", ctypes.c_int32), ("handle", ctypes.c_uint64),
                ("generation", ctypes.c_uint64), ("rings", Place * 16)]


record = Record.in_dll(_library, "probe_agent_record")
