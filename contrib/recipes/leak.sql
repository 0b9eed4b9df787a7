-- Memory grows: in which process, and how fast? Wants `record process on` in ctl some time before.
SELECT rank, pid, max(rss) AS rss, (max(rss) - min(rss)) / (max(ts) - min(ts)) AS bytes_per_second
FROM process_samples GROUP BY rank, pid HAVING count(*) > 1 ORDER BY bytes_per_second DESC
