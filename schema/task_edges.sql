-- which asyncio task awaits which (CPython 3.12 on)
-- One row for each pair: a task that several others await has several.
-- Where some may be missing or wrong (see tasks), the last row has no task.
-- source: passive
CREATE TABLE task_edges(
    task INTEGER,      -- [address] id of the task that is awaited; NULL: the row is a note
    awaited_by INTEGER -- [address] id of the task that awaits it
);
