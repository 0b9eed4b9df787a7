-- the environment that the process was started with
-- source: passive
CREATE TABLE environ(
    name TEXT, -- the variable
    value TEXT -- as it was when the process executed its program
);
