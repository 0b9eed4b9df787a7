-- what PyTorch's tensors take on each device, by whose they are
-- One row for each device that has tensors, of those in torch_tensors: each storage counts once, as its first holder's in the
-- order of these columns. What an allocator keeps beyond that isn't in it, nor what only C++ has.
-- source: passive
CREATE TABLE torch_memory(
    device TEXT,         -- cpu, cuda:0 ...; NULL: not known
    tensors INTEGER,     -- that are there
    storages INTEGER,    -- pieces of memory that they lie in
    allocated INTEGER,   -- [bytes] of those together
    largest INTEGER,     -- [bytes] of the largest one
    parameters INTEGER,  -- [bytes] of parameters
    gradients INTEGER,   -- [bytes] of their gradients
    optimizers INTEGER,  -- [bytes] of what optimizers keep
    buffers INTEGER,     -- [bytes] of buffers
    activations INTEGER, -- [bytes] of what was computed of parameters
    others INTEGER       -- [bytes] of all others
);
