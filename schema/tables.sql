-- the tables that there are
-- source: schema
CREATE TABLE tables(
    name TEXT,       -- the table's name, in the schema python
    comment TEXT,    -- what its rows are
    source TEXT,     -- 'passive': read from outside; 'recorded': by an agent; 'sampled': by a profile; or 'schema'
    columns INTEGER, -- how many it has
    kept INTEGER,    -- recorded rows that are there; NULL: none were ever recorded
    lost INTEGER     -- rows that later ones have overwritten, or that were dropped; NULL: as kept
);
