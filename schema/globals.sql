-- what the modules of the main interpreter bind: their global names
-- One row for each name, but for those that the import system sets. Each module is shown as it was at one instant.
-- With WHERE module = '...' only that module is read, with WHERE name = '...' only the values of that name. The
-- values are decoded from outside, no code runs for it.
-- source: passive
CREATE TABLE globals(
    module TEXT, -- the key in sys.modules
    name TEXT,   -- the variable; NULL: what stands in sys.modules is no module, and this is its type and value; or the value is a note in brackets
    type TEXT,   -- the type of its value, as in module.Type
    value TEXT   -- what repr() would say, as far as that can be known without running code
);
