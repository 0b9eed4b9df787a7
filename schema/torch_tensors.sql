-- all tensors that Python has, and whose they are
-- One row for each torch.Tensor, and each gradient of one, read from outside. GROUP BY shape shows what there is too much of. Those
-- that only C++ has aren't listed, such as what is kept for a backward pass. The columns from norm on are left out of
-- SELECT *, as in torch_parameters.
-- source: passive
CREATE TABLE torch_tensors(
    address INTEGER,        -- of the Python object; NULL: it has none
    shape TEXT,             -- its sizes: [64, 32]
    dtype TEXT,             -- float32, bfloat16 ...
    device TEXT,            -- cpu, cuda:0 ...; NULL: not known
    bytes INTEGER,          -- [bytes] its elements take
    holder TEXT,            -- 'parameter', 'buffer', 'gradient', 'optimizer'; 'activation': it was computed of what is trained; NULL: anything else
    name TEXT,              -- path in the model of what it is, or is the gradient of; of an optimizer's the name in its state
    model TEXT,             -- class of the model, or of the optimizer, as in torch_parameters
    storage INTEGER,        -- address of its storage: tensors of one storage are views of the same memory
    storage_bytes INTEGER,  -- [bytes] that has
    data INTEGER,           -- address of its first element, on its device
    version INTEGER,        -- how often it was changed in place
    norm REAL HIDDEN,       -- square root of the sum of squares; NULL: one is NaN
    nan INTEGER HIDDEN,     -- how many elements are NaN
    inf INTEGER HIDDEN,     -- how many are infinite
    min REAL HIDDEN,        -- the least that isn't NaN; of absolute values for complex ones
    max REAL HIDDEN         -- the greatest
);
