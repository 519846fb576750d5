-- name: ListDeadLetters :many
-- ListDeadLetters lists dead letters without what they say, in the order of their names, beyond one.
SELECT d.side, d.consumer, d.source, d.id, d.key, d.type, coalesce(d.sealed_by, '')::pg_catalog.text AS sealed_by, d.class, d.reason, d.attempts,
       pg_catalog.timestamptz_send(d.created_at)::pg_catalog.bytea AS created_at, pg_catalog.timestamptz_send(d.died_at)::pg_catalog.bytea AS died_at
FROM idem.dead_letters d
WHERE (@only_side::pg_catalog.text OPERATOR(pg_catalog.=) '' OR d.side OPERATOR(pg_catalog.=) @only_side::pg_catalog.text)
  AND (@only_consumer::pg_catalog.text OPERATOR(pg_catalog.=) '' OR d.consumer OPERATOR(pg_catalog.=) @only_consumer::pg_catalog.text)
  AND (@only_source::pg_catalog.text OPERATOR(pg_catalog.=) '' OR d.source OPERATOR(pg_catalog.=) @only_source::pg_catalog.text)
  AND (d.side, d.consumer, d.source, d.id) OPERATOR(pg_catalog.>)
      (@after_side::pg_catalog.text, @after_consumer::pg_catalog.text, @after_source::pg_catalog.text, @after_id::pg_catalog.text)
ORDER BY d.side, d.consumer, d.source, d.id
LIMIT @room::pg_catalog.int4;

-- name: ShowDeadLetter :one
-- ShowDeadLetter reads a dead letter.
SELECT d.key, d.type, d.payload, coalesce(d.headers::pg_catalog.text, '')::pg_catalog.text AS headers,
       coalesce(d.sealed_by, '')::pg_catalog.text AS sealed_by, d.class, d.reason, d.attempts,
       pg_catalog.timestamptz_send(d.created_at)::pg_catalog.bytea AS created_at, pg_catalog.timestamptz_send(d.died_at)::pg_catalog.bytea AS died_at
FROM idem.dead_letters d
WHERE d.side OPERATOR(pg_catalog.=) @side::pg_catalog.text AND d.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
  AND d.source OPERATOR(pg_catalog.=) @source::pg_catalog.text AND d.id OPERATOR(pg_catalog.=) @id::pg_catalog.text;

-- name: TakeDeadLetter :one
-- TakeDeadLetter reads a dead letter and removes it, for whoever does something else with it in the same transaction.
DELETE FROM idem.dead_letters d
WHERE d.side OPERATOR(pg_catalog.=) @side::pg_catalog.text AND d.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
  AND d.source OPERATOR(pg_catalog.=) @source::pg_catalog.text AND d.id OPERATOR(pg_catalog.=) @id::pg_catalog.text
RETURNING d.key, d.type, d.payload, coalesce(d.headers::pg_catalog.text, '')::pg_catalog.text AS headers,
          coalesce(d.sealed_by, '')::pg_catalog.text AS sealed_by, d.class, d.reason, d.attempts,
          pg_catalog.timestamptz_send(d.created_at)::pg_catalog.bytea AS created_at, pg_catalog.timestamptz_send(d.died_at)::pg_catalog.bytea AS died_at;
