-- the parameters of PyTorch's models, and what their values come to
-- One row for each parameter of each model, read from outside: no code runs for it, and nothing waits. The columns
-- from norm on are left out of SELECT *: they are read from memory, a millisecond or so a MB, only if they are asked for by name,
-- and are NULL for what isn't in the processor's memory.
-- source: passive
CREATE TABLE torch_parameters(
    model TEXT,             -- class of the model it is in; of a second one of that class Class#2
    name TEXT,              -- its path below that, as in named_parameters()
    module TEXT,            -- path of the module it is in; empty: it is the model's own
    shape TEXT,             -- its sizes: [64, 32]
    dtype TEXT,             -- float32, bfloat16 ...
    device TEXT,            -- cpu, cuda:0 ...; NULL: not known
    bytes INTEGER,          -- [bytes] its elements take; of a DTensor, as FSDP has them, this rank's: and so in what follows
    requires_grad INTEGER,  -- whether it is to be trained: 0, 1; NULL: not known
    version INTEGER,        -- how often it was changed in place
    counter INTEGER,        -- address where that is counted, for `watch 0xADDR:4`
    data INTEGER,           -- address of its first element, on its device
    grad_data INTEGER,      -- the same of its gradient; NULL: there is none
    address INTEGER,        -- of the Python object
    norm REAL HIDDEN,       -- square root of the sum of squares; NULL: one is NaN
    nan INTEGER HIDDEN,     -- how many elements are NaN
    inf INTEGER HIDDEN,     -- how many are infinite
    min REAL HIDDEN,        -- the least that isn't NaN; of absolute values for complex ones
    max REAL HIDDEN,        -- the greatest
    grad_norm REAL HIDDEN,  -- of its gradient: as norm
    grad_nan INTEGER HIDDEN, -- of its gradient: as nan
    grad_inf INTEGER HIDDEN -- of its gradient: as inf
);
