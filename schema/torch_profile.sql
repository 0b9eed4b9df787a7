-- what PyTorch's own profiler saw in some steps, once `profile torch` was written to ctl
-- source: recorded
CREATE TABLE torch_profile(
    ts REAL,         -- [s] since 1970, when it began
    run INTEGER,     -- which profile of the process it is of, from 1
    thread INTEGER,  -- PyTorch's number of the thread, from 1; of a GPU that of the stream
    device TEXT,     -- 'cpu', 'cuda:0' and the like
    kind TEXT,       -- 'op': an operator, a kernel, or what record_function() names; 'step': from one step of the optimizer to the next
    name TEXT,       -- as PyTorch calls it: aten::mm; of a step its number, the same on all ranks
    duration REAL    -- [s]
);
