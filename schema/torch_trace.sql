-- how long each module of a PyTorch model took, in sampled steps
-- source: recorded
CREATE TABLE torch_trace(
    ts REAL,               -- [s] since 1970, when the stage began
    step INTEGER,          -- number of the optimizer's step since recording began, from 0
    seq INTEGER,           -- order of the stages within the step, from 0
    module TEXT,           -- its name in the model, as named_modules() has it
    stage TEXT,            -- 'forward', 'backward' or 'step'
    time_offset REAL,      -- [s] from the beginning of the step
    duration REAL,         -- [s] of the stage
    allocated INTEGER,     -- [bytes] of tensors on the GPU after it; NULL: there is no GPU
    max_allocated INTEGER, -- [bytes] the most so far
    cached INTEGER,        -- [bytes] that PyTorch holds of the GPU's memory
    max_cached INTEGER     -- [bytes] the most so far
);
