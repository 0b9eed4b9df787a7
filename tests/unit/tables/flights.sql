-- a recorded table that only a test has
-- This file is all that it takes.
-- source: recorded
CREATE TABLE flights(
    ts REAL,         -- [s] since 1970
    number INTEGER,  -- counts them
    from_place TEXT, -- where it began
    to_place TEXT,   -- where it ended; NULL: it has not
    height REAL      -- [m] at most; NULL: not known yet
);
