-- PyTorch's optimizers by group of parameters
-- One row for each group of each optimizer, read from outside.
-- source: passive
CREATE TABLE torch_optimizers(
    optimizer TEXT,       -- its class; of a second one of that class Class#2
    param_group INTEGER,  -- number of the group: 0, 1 ...
    lr REAL,              -- learning rate; NULL: it has none
    weight_decay REAL,    -- NULL: it has none
    parameters INTEGER,   -- tensors in the group
    state_bytes INTEGER,  -- [bytes] that the whole optimizer keeps in tensors of its own
    step REAL,            -- steps that the optimizer has counted; NULL: it counts none
    address INTEGER       -- of the Python object
);
