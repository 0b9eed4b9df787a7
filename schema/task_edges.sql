-- which asyncio task awaits which (CPython 3.12 on)
-- One row for each pair: a task that several others await has several.
-- source: passive
CREATE TABLE task_edges(
    task INTEGER,      -- [address] id of the task that is awaited
    awaited_by INTEGER -- [address] id of the task that awaits it
);
