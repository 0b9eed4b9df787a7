-- how long each module of a PyTorch model took, in sampled steps
-- source: recorded
CREATE TABLE torch_trace(
    ts REAL,               -- [s] since 1970, when the stage began
    step INTEGER,          -- number of the optimizer's step, the same on all ranks
    seq INTEGER,           -- order in which the stages of the step began; 0 is the whole iteration
    module TEXT,           -- its name in the model, as named_modules() has it; the class of the model itself, of a loss, an optimizer and a dataset; of a collective the process group's method
    stage TEXT,            -- 'forward', 'backward', 'step' (the optimizer's), or 'iteration': all since the step before, without a module; 'loader': from next() on a DataLoader to the batch; 'collective': from its call until it was waited for; 'recording': what all this took, which is in no other duration; 'shadow': an iteration that isn't recorded, behind one that is
    time_offset REAL,      -- [s] from the beginning of the iteration
    duration REAL,         -- [s] of the stage, on the GPU if the model is there: NULL until that has come to its end
    allocated INTEGER,     -- [bytes] of tensors on the GPU after it; NULL: there is no GPU
    max_allocated INTEGER, -- [bytes] the most so far
    cached INTEGER,        -- [bytes] that PyTorch holds of the GPU's memory
    max_cached INTEGER,    -- [bytes] the most so far
    allocated_delta INTEGER ADDED,     -- [bytes] more than after the stage that ended before; NULL: that is unknown, as in what follows
    max_allocated_delta INTEGER ADDED, -- [bytes] by which the most has grown since then
    cached_delta INTEGER ADDED,        -- [bytes] more than then
    max_cached_delta INTEGER ADDED,    -- [bytes] by which the most has grown since then
    role TEXT ADDED,       -- of the process, as in the table process
    world INTEGER ADDED    -- ranks of its job, on all hosts
);
