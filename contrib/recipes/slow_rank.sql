-- All wait for one: which rank works while the others wait? Ask twice, some seconds apart: it is whose processor time
-- grows differently.
SELECT p.rank, p.pid, t.state, t.wchan, t.stands, p.cpu_user, p.cpu_system
FROM process p JOIN threads t ON t.pid = p.pid
WHERE t.is_main = 1 ORDER BY t.stands, p.rank
