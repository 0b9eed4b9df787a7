"""What PyTorch's own recorder has, its Flight Recorder: collectives that were called before ours were recorded, too.

It is in PyTorch from about 2.8 on, for gloo on a processor as well, and there it is on unless TORCH_FR_BUFFER_SIZE=0. A
build with NCCL has another one besides, for NCCL: that isn't read. Both tell what they have as JSON:
torch/csrc/distributed/c10d/FlightRecorder.hpp."""

FLIGHT_MAX = 2500     # entries that are taken at once, the last ones
BYTES_MAX = 16 << 20  # of what it tells
DIMENSIONS_MAX = 64   # of a tensor
STATE_MAX = 16        # characters of a state; 'completed' has most
NAMES = {"Half": "float16", "BFloat16": "bfloat16", "Float": "float32", "Double": "float64", "Bool": "bool",
         "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"}  # of a ScalarType

flight = []  # rows that are to be written


def shape_of(entry):
    """("2, 3", "float32", bytes) of its first tensor, as far as they are known."""
    sizes, dtypes = entry.get("input_sizes") or [None], entry.get("input_dtypes") or [None]
    size, dtype = sizes[0], NAMES.get(dtypes[0], dtypes[0])
    if type(size) is not list or len(size) > DIMENSIONS_MAX or not all(type(one) is int and one >= 0 for one in size):
        return None, None, None
    items = 1
    for one in size:
        items *= one
    known = dtype in SIZES and items < 1 << 50
    return ", ".join(map(str, size)), dtype, items * SIZES[dtype] if known else None


def row_of(entry):
    """What _probe.flown() writes."""
    number, created = entry["record_id"], entry["time_created_ns"]
    completed = entry.get("time_discovered_completed_ns") or 0
    if not 0 <= number < 1 << 62:
        raise ValueError(number)
    return (number, entry["process_group"][0], None if entry.get("is_p2p") else entry["collective_seq_id"],
            created / 1e9, (completed - created) / 1e9 if completed > created else None,
            entry["profiling_name"].rpartition(":")[2], *shape_of(entry),
            "retired" if entry.get("retired") else str(entry["state"]).encode("ascii", "replace").decode()[:STATE_MAX])


def read_flight():
    """Takes what came since the last time. Words: how much that was."""
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    json = sys.modules.get("json")
    if dump is None or json is None:
        return ""
    try:
        said = dump()
        entries = json.loads(said)["entries"] if len(said) <= BYTES_MAX else []
        entries = [one for one in entries if one["record_id"] > _probe.last_flown()]
        flight[:] = [row_of(one) for one in entries[-FLIGHT_MAX:]]
    except Exception as problem:
        return f"; what PyTorch's Flight Recorder says isn't understood: {type(problem).__name__}"
    return f"; PyTorch's Flight Recorder has {len(flight)} of before" if flight else ""


def write_flight():
    """Those that were taken, once rows can be written."""
    rows = flight[:]
    flight.clear()
    if rows and not _probe.flown(*rows[0]):
        flight.extend(rows)
    elif rows:
        for row in rows[1:]:
            _probe.flown(*row)
