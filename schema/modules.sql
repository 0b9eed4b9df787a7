-- the imported modules: sys.modules of each interpreter
-- Where some may be missing or wrong, a row without a name says so in its type, in brackets.
-- source: passive
CREATE TABLE modules(
    name TEXT,          -- the key in sys.modules
    file TEXT,          -- __file__; NULL: built in, or not from a file
    type TEXT,          -- the type of the entry: 'module', for nearly all
    interpreter INTEGER -- number of the interpreter
);
