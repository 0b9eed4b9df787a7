-- a table that only a test has
-- It shows all that adding one takes: this file and colours.c.
-- source: test
CREATE TABLE colours(
    id INTEGER,    -- counts them
    name TEXT,     -- what it is called
    share REAL,    -- [percent] of the whole
    extra INTEGER  -- [bytes] NULL, mostly
);
