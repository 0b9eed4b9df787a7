-- the columns of the tables
-- source: schema
CREATE TABLE columns(
    table_name TEXT,  -- the table that it belongs to
    position INTEGER, -- in the table, from 0
    name TEXT,        -- the column's name
    type TEXT,        -- 'INTEGER', 'REAL' or 'TEXT'
    unit TEXT,        -- 's', 'bytes', 'address'; NULL: none
    comment TEXT      -- what it holds
);
