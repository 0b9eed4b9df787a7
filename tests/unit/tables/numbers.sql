-- many rows, for joins and limits
-- source: test
CREATE TABLE numbers(
    n INTEGER,    -- from 0
    half INTEGER, -- n / 2
    word TEXT     -- n in words, of a kind
);
