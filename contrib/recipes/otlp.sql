-- Spans for OpenTelemetry: those that have ended, as lines of OTLP/JSON, up to a thousand traces each. A trace is a
-- span that none is around, and all in it.
-- { echo '-- format: jsonl'; cat otlp.sql; } > /probe/all/query; jq -r .otlp /probe/all/query |
-- while read -r line; do
--     echo "$line" | curl -sS -H 'Content-Type: application/json' --data-binary @- http://localhost:4318/v1/traces
-- done
WITH RECURSIVE
    known AS MATERIALIZED (SELECT host, pid, rank, id, parent, name, start, duration, failed, attrs FROM spans),
    traces(host, pid, id, root) AS (
        SELECT host, pid, id, coalesce(parent, id) FROM known
        WHERE (host, pid, parent) NOT IN (SELECT host, pid, id FROM known) OR parent IS NULL
        UNION ALL
        SELECT known.host, known.pid, known.id, root FROM traces
        JOIN known ON (known.host, known.pid, known.parent) = (traces.host, traces.pid, traces.id)),
    attributes(host, pid, id, list) AS (
        SELECT host, pid, known.id, json_group_array(json_object('key', key, 'value', CASE type
            WHEN 'integer' THEN json_object('intValue', CAST(value AS TEXT))
            WHEN 'real' THEN json_object('doubleValue', value)
            WHEN 'true' THEN json_object('boolValue', json('true'))
            WHEN 'false' THEN json_object('boolValue', json('false'))
            ELSE json_object('stringValue', CAST(value AS TEXT)) END))
        FROM known JOIN json_each(iif(json_valid(attrs), attrs, NULL)) WHERE type <> 'null'
        GROUP BY host, pid, known.id)
SELECT json_object('resourceSpans', json_array(json_object(
    'resource', json_object('attributes', json_array(
        json_object('key', 'service.name', 'value', json_object('stringValue', 'python')),
        json_object('key', 'host.name', 'value', json_object('stringValue', host)),
        json_object('key', 'process.pid', 'value', json_object('intValue', CAST(pid AS TEXT))),
        json_object('key', 'rank', 'value', json_object('stringValue', CAST(coalesce(rank, '') AS TEXT))))),
    'scopeSpans', json_array(json_object(
        'scope', json_object('name', 'probefs'),
        'spans', json_group_array(json_object(
            'traceId', lower(substr('00000000' || hex(substr(host, -4)), -8)) || printf('%08x%016x', pid, root),
            'spanId', printf('%08x%08x', pid, id),
            'parentSpanId', iif(parent IS NULL, '', printf('%08x%08x', pid, parent)),
            'name', name,
            'kind', 1,
            'startTimeUnixNano', printf('%d', start * 1e9),
            'endTimeUnixNano', printf('%d', (start + duration) * 1e9),
            'attributes', json(coalesce(list, '[]')),
            'status', json_object('code', iif(failed, 2, 0))))))))) AS otlp
FROM known JOIN traces USING (host, pid, id) LEFT JOIN attributes USING (host, pid, id)
WHERE duration IS NOT NULL GROUP BY host, pid, root / 1000
