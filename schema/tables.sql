-- the tables that there are
-- source: schema
CREATE TABLE tables(
    name TEXT,      -- the table's name, in the schema python
    comment TEXT,   -- what its rows are
    source TEXT,    -- 'passive': read from outside; 'schema': known without looking
    columns INTEGER -- how many it has
);
