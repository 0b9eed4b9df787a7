-- It has crashed: who died first, and of what? Wants `on-crash record` in ctl before; all/ keeps the rows of those that
-- have ended.
SELECT ts, rank, pid, kind, name, value, func, file, lineno FROM crash
WHERE kind IN ('exception', 'signal') ORDER BY ts
