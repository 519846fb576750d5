-- name: AddMessages :exec
-- AddMessages adds messages in the order of the arrays. The transaction has its id before the first message has its place: a
-- relay waits for what is missing by the transactions that were under way.
INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
SELECT pg_catalog.clock_timestamp(), m.id::pg_catalog.uuid, m.topic, m.key, m.type, m.payload,
       CASE WHEN m.headers OPERATOR(pg_catalog.<>) '' THEN m.headers::pg_catalog.jsonb END,
       CASE WHEN m.trace OPERATOR(pg_catalog.<>) '' THEN m.trace END
FROM (SELECT pg_catalog.unnest(@ids::pg_catalog.text[]) AS id, pg_catalog.unnest(@topics::pg_catalog.text[]) AS topic,
             pg_catalog.unnest(@keys::pg_catalog.text[]) AS key, pg_catalog.unnest(@types::pg_catalog.text[]) AS type,
             pg_catalog.unnest(@payloads::pg_catalog.bytea[]) AS payload, pg_catalog.unnest(@headers::pg_catalog.text[]) AS headers,
             pg_catalog.unnest(@traces::pg_catalog.text[]) AS trace, pg_catalog.pg_current_xact_id() AS xid) m
WHERE m.xid IS NOT NULL;

-- name: AddDelayed :exec
-- AddDelayed is AddMessages for messages of which some are not to be published before a moment. What is due at once goes where it
-- would go without one.
WITH m AS MATERIALIZED (
    SELECT u.id::pg_catalog.uuid AS id, u.topic, u.key, u.type, u.payload,
           CASE WHEN u.headers OPERATOR(pg_catalog.<>) '' THEN u.headers::pg_catalog.jsonb END AS headers,
           CASE WHEN u.trace OPERATOR(pg_catalog.<>) '' THEN u.trace END AS trace,
           CASE WHEN u.moment OPERATOR(pg_catalog.<>) '' THEN u.moment::pg_catalog.timestamptz END AS not_before, c.at
    FROM (SELECT pg_catalog.unnest(@ids::pg_catalog.text[]) AS id, pg_catalog.unnest(@topics::pg_catalog.text[]) AS topic,
                 pg_catalog.unnest(@keys::pg_catalog.text[]) AS key, pg_catalog.unnest(@types::pg_catalog.text[]) AS type,
                 pg_catalog.unnest(@payloads::pg_catalog.bytea[]) AS payload, pg_catalog.unnest(@headers::pg_catalog.text[]) AS headers,
                 pg_catalog.unnest(@traces::pg_catalog.text[]) AS trace, pg_catalog.unnest(@moments::pg_catalog.text[]) AS moment) u
    CROSS JOIN (SELECT pg_catalog.clock_timestamp() AS at OFFSET 0) c
), later AS (
    INSERT INTO idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
    SELECT m.not_before, m.at, m.id, m.topic, m.key, m.type, m.payload, m.headers, m.trace
    FROM m
    WHERE m.not_before OPERATOR(pg_catalog.>) m.at
)
INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
SELECT m.at, m.id, m.topic, m.key, m.type, m.payload, m.headers, m.trace
FROM m
WHERE m.not_before IS NULL OR m.not_before OPERATOR(pg_catalog.<=) m.at;

-- name: NextDelayed :one
-- NextDelayed tells in how many microseconds the first delayed message is due, an hour at most, and how long it took to find out:
-- beside an old snapshot, all that has been moved since is in the way.
SELECT (least(coalesce(extract(epoch FROM ((SELECT d.not_before FROM idem.delayed d ORDER BY d.not_before LIMIT 1)
                                           OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())), 3600), 3600)
        OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS due,
       (extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp()))
        OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS took;

-- name: MoveDelayed :one
-- MoveDelayed inserts messages in the outbox that are due from a moment on, in the order of that: as many as room says, or as have so
-- many octets. One transaction does so at a time, or the next ones would overtake them.
WITH now AS MATERIALIZED (
    SELECT pg_catalog.pg_try_advisory_xact_lock(1768187247, -2) AS mine, pg_catalog.clock_timestamp() AS at
), due AS MATERIALIZED (
    SELECT o.not_before, o.seq,
           pg_catalog.sum(o.octets) OVER (ORDER BY o.not_before, o.seq ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog.-) o.octets AS before
    FROM (
        SELECT d.not_before, d.seq, coalesce(pg_catalog.octet_length(d.payload), 0) AS octets
        FROM idem.delayed d
        WHERE d.not_before OPERATOR(pg_catalog.>=) (@from_moment::pg_catalog.text)::pg_catalog.timestamptz
          AND d.not_before OPERATOR(pg_catalog.<=) (SELECT n.at FROM now n) AND (SELECT n.mine FROM now n)
        ORDER BY d.not_before, d.seq
        LIMIT @room::pg_catalog.int4
    ) o
), last AS MATERIALIZED (
    SELECT t.not_before, t.seq FROM due t WHERE t.before OPERATOR(pg_catalog.<) @octets::pg_catalog.int8 ORDER BY t.not_before DESC, t.seq DESC LIMIT 1
), gone AS (
    DELETE FROM idem.delayed d
    WHERE d.not_before OPERATOR(pg_catalog.>=) (@from_moment::pg_catalog.text)::pg_catalog.timestamptz
      AND (d.not_before, d.seq) OPERATOR(pg_catalog.<=) ((SELECT l.not_before FROM last l), (SELECT l.seq FROM last l))
    RETURNING d.not_before, d.seq, d.id, d.aggregatetype, d.aggregateid, d.type, d.payload, d.headers, d.tracingspancontext
), put AS (
    INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
    SELECT g.not_before, g.id, g.aggregatetype, g.aggregateid, g.type, g.payload, g.headers, g.tracingspancontext
    FROM (SELECT * FROM gone ORDER BY gone.not_before, gone.seq) g
    RETURNING 1
)
SELECT n.mine, (SELECT pg_catalog.count(*) FROM put)::pg_catalog.int8 AS moved,
       pg_catalog.timestamptz_send((SELECT l.not_before FROM last l))::pg_catalog.bytea AS until
FROM now n;

-- name: LimitRelay :one
-- LimitRelay begins every transaction of a relay. The table is empty or has millions of rows, and no statistics tell which:
-- only a scan of the index is left to the planner.
SELECT pg_catalog.set_config('statement_timeout', '5min', true)::pg_catalog.text AS work_limit,
       pg_catalog.set_config('lock_timeout', '10s', true)::pg_catalog.text AS lock_limit,
       pg_catalog.set_config('enable_seqscan', 'off', true)::pg_catalog.text AS seqscan,
       pg_catalog.set_config('enable_bitmapscan', 'off', true)::pg_catalog.text AS bitmapscan,
       pg_catalog.set_config('enable_indexscan', 'on', true)::pg_catalog.text AS indexscan,
       pg_catalog.set_config('jit', 'off', true)::pg_catalog.text AS jit;

-- name: ListWriters :many
-- ListWriters lists the other transactions that can have a message in the outbox which is not committed yet. An INSERT locks the
-- table before it takes a place, and holds the lock until its rows are visible or gone. A prepared transaction has no pid, and may
-- have another name than before.
SELECT l.virtualtransaction::pg_catalog.text AS name, (l.pid IS NULL)::pg_catalog.bool AS prepared
FROM pg_catalog.pg_locks l
WHERE l.locktype OPERATOR(pg_catalog.=) 'relation' AND l.relation OPERATOR(pg_catalog.=) 'idem.outbox'::pg_catalog.regclass::pg_catalog.oid
  AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
  AND l.mode OPERATOR(pg_catalog.=) 'RowExclusiveLock' AND l.granted
  AND (l.pid IS NULL OR l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid());

-- name: ReadMessages :many
-- ReadMessages reads what is not held back, in gaps and beyond a place: as much as room says, or as have so many octets. What is
-- of another stream or relay comes without what it says, so that it is no gap.
SELECT m.seq, m.mine, m.id, m.topic, m.key, m.type, (CASE WHEN m.mine THEN m.payload END)::pg_catalog.bytea AS payload,
       (CASE WHEN m.mine THEN coalesce(m.headers::pg_catalog.text, '') ELSE '' END)::pg_catalog.text AS headers, m.created_at
FROM (
    SELECT o.seq, o.mine, o.id, o.topic, o.key, o.type, o.payload, o.headers, o.created_at,
           pg_catalog.sum(o.octets) OVER (ORDER BY o.seq ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog.-) o.octets AS before
    FROM (
        SELECT x.seq, x.mine, (x.id::pg_catalog.text)::pg_catalog.text AS id, x.aggregatetype AS topic, x.aggregateid AS key, x.type, x.payload, x.headers,
               pg_catalog.timestamptz_send(x.created_at)::pg_catalog.bytea AS created_at,
               (CASE WHEN x.mine THEN coalesce(pg_catalog.octet_length(x.payload), 0) ELSE 0 END)::pg_catalog.int4 AS octets
        FROM (
            SELECT u.seq, u.id, u.aggregatetype, u.aggregateid, u.type, u.payload, u.headers, u.created_at,
                   ((@streams::pg_catalog.int4 OPERATOR(pg_catalog.=) 1
                    OR ((CASE WHEN u.aggregateid OPERATOR(pg_catalog.=) '' THEN u.seq
                              ELSE pg_catalog.hashtext(u.aggregatetype OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) u.aggregateid)::pg_catalog.int8 END
                         OPERATOR(pg_catalog.&) 15::pg_catalog.int8) OPERATOR(pg_catalog.%) @streams::pg_catalog.int4) OPERATOR(pg_catalog.=) @stream::pg_catalog.int4)::pg_catalog.bool
                   AND (@every::pg_catalog.bool
                        OR u.aggregatetype OPERATOR(pg_catalog.~~) ANY ((@topics::pg_catalog.text)::pg_catalog.text[])
                           AND NOT u.aggregatetype OPERATOR(pg_catalog.~~) ANY ((@foreign_topics::pg_catalog.text)::pg_catalog.text[])))::pg_catalog.bool AS mine
            FROM (
                SELECT i.seq, i.id, i.aggregatetype, i.aggregateid, i.type, i.payload, i.headers, i.created_at
                FROM (SELECT pg_catalog.unnest((@lows::pg_catalog.text)::pg_catalog.int8[]) AS low, pg_catalog.unnest((@highs::pg_catalog.text)::pg_catalog.int8[]) AS high) g
                CROSS JOIN LATERAL (
                    SELECT r.seq, r.id, r.aggregatetype, r.aggregateid, r.type, r.payload, r.headers, r.created_at
                    FROM idem.outbox r
                    WHERE NOT r.held AND r.seq OPERATOR(pg_catalog.>=) g.low AND r.seq OPERATOR(pg_catalog.<=) g.high
                    ORDER BY r.seq
                    LIMIT @room::pg_catalog.int4
                ) i
                UNION ALL
                (SELECT r.seq, r.id, r.aggregatetype, r.aggregateid, r.type, r.payload, r.headers, r.created_at
                 FROM idem.outbox r
                 WHERE NOT r.held AND r.seq OPERATOR(pg_catalog.>) @after::pg_catalog.int8
                 ORDER BY r.seq
                 LIMIT @room::pg_catalog.int4)
            ) u
            ORDER BY u.seq
            LIMIT @room::pg_catalog.int4
        ) x
    ) o
) m
WHERE m.before OPERATOR(pg_catalog.<) @octets::pg_catalog.int8
ORDER BY m.seq;

-- name: ReadHeld :many
-- ReadHeld reads the first messages of keys that are held back, as many of each as its run says. A message without a key is
-- known by its place: low and high are that place, and of a key they are everything.
SELECT m.seq, m.id, m.topic, m.key, m.type, m.payload, m.headers, m.created_at, m.attempts
FROM (
    SELECT o.seq, o.id, o.topic, o.key, o.type, o.payload, o.headers, o.created_at, o.attempts,
           pg_catalog.sum(o.octets) OVER (ORDER BY o.seq ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog.-) o.octets AS before
    FROM (
        SELECT pg_catalog.unnest((@topics::pg_catalog.text)::pg_catalog.text[]) AS topic, pg_catalog.unnest((@keys::pg_catalog.text)::pg_catalog.text[]) AS key,
               pg_catalog.unnest((@lows::pg_catalog.text)::pg_catalog.int8[]) AS low, pg_catalog.unnest((@highs::pg_catalog.text)::pg_catalog.int8[]) AS high,
               pg_catalog.unnest((@runs::pg_catalog.text)::pg_catalog.int4[]) AS run
    ) k
    CROSS JOIN LATERAL (
        SELECT r.seq, (r.id::pg_catalog.text)::pg_catalog.text AS id, r.aggregatetype AS topic, r.aggregateid AS key, r.type, r.payload,
               coalesce(r.headers::pg_catalog.text, '')::pg_catalog.text AS headers,
               pg_catalog.timestamptz_send(r.created_at)::pg_catalog.bytea AS created_at,
               coalesce(r.attempts, 0)::pg_catalog.int4 AS attempts,
               coalesce(pg_catalog.octet_length(r.payload), 0)::pg_catalog.int4 AS octets
        FROM idem.outbox r
        WHERE r.held AND r.aggregatetype OPERATOR(pg_catalog.=) k.topic AND r.aggregateid OPERATOR(pg_catalog.=) k.key
          AND r.seq OPERATOR(pg_catalog.>=) k.low AND r.seq OPERATOR(pg_catalog.<=) k.high
        ORDER BY r.seq
        LIMIT k.run
    ) o
) m
WHERE m.before OPERATOR(pg_catalog.<) @octets::pg_catalog.int8
ORDER BY m.seq;

-- name: ListHeld :many
-- ListHeld tells which keys are held back, and when the first message of each is tried again, in microseconds.
SELECT h.topic, h.key, h.place, h.attempts, h.due
FROM (
    SELECT DISTINCT ON (r.aggregatetype, r.aggregateid, CASE WHEN r.aggregateid OPERATOR(pg_catalog.=) '' THEN r.seq ELSE 0 END)
           r.aggregatetype AS topic, r.aggregateid AS key,
           (CASE WHEN r.aggregateid OPERATOR(pg_catalog.=) '' THEN r.seq ELSE 0 END)::pg_catalog.int8 AS place,
           coalesce(r.attempts, 0)::pg_catalog.int4 AS attempts,
           (coalesce(pg_catalog.date_part('epoch', r.next_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()), 0)
            OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS due
    FROM idem.outbox r
    WHERE r.held
      AND (@streams::pg_catalog.int4 OPERATOR(pg_catalog.=) 1
           OR ((CASE WHEN r.aggregateid OPERATOR(pg_catalog.=) '' THEN r.seq
                     ELSE pg_catalog.hashtext(r.aggregatetype OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) r.aggregateid)::pg_catalog.int8 END
                OPERATOR(pg_catalog.&) 15::pg_catalog.int8) OPERATOR(pg_catalog.%) @streams::pg_catalog.int4) OPERATOR(pg_catalog.=) @stream::pg_catalog.int4)
      AND (@every::pg_catalog.bool
           OR r.aggregatetype OPERATOR(pg_catalog.~~) ANY ((@topics::pg_catalog.text)::pg_catalog.text[])
              AND NOT r.aggregatetype OPERATOR(pg_catalog.~~) ANY ((@foreign_topics::pg_catalog.text)::pg_catalog.text[]))
    ORDER BY r.aggregatetype, r.aggregateid, CASE WHEN r.aggregateid OPERATOR(pg_catalog.=) '' THEN r.seq ELSE 0 END, r.seq
) h;

-- name: DeletePublished :exec
-- DeletePublished removes messages that were published.
DELETE FROM idem.outbox
WHERE held OPERATOR(pg_catalog.=) ANY ('{f,t}'::pg_catalog.bool[]) AND seq OPERATOR(pg_catalog.=) ANY ((@seqs::pg_catalog.text)::pg_catalog.int8[]);

-- name: KeepPublished :exec
-- KeepPublished removes messages that were published, and keeps them elsewhere for a time, with or without what they say.
WITH gone AS (
    DELETE FROM idem.outbox
    WHERE held OPERATOR(pg_catalog.=) ANY ('{f,t}'::pg_catalog.bool[]) AND seq OPERATOR(pg_catalog.=) ANY ((@seqs::pg_catalog.text)::pg_catalog.int8[])
    RETURNING seq, created_at, id, aggregatetype, aggregateid, type, payload, headers
)
INSERT INTO idem.published (id, seq, created_at, published_at, expires_at, aggregatetype, aggregateid, type, payload, headers)
SELECT id, seq, created_at, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval,
       aggregatetype, aggregateid, type, CASE WHEN @whole::pg_catalog.bool THEN payload END, CASE WHEN @whole::pg_catalog.bool THEN headers END
FROM gone
ON CONFLICT (id) DO NOTHING;

-- name: HoldMessages :exec
-- HoldMessages holds messages back because they are behind another one.
UPDATE idem.outbox SET held = true
WHERE NOT held AND seq OPERATOR(pg_catalog.=) ANY ((@seqs::pg_catalog.text)::pg_catalog.int8[]);

-- name: BlameMessages :exec
-- BlameMessages counts an attempt of each message, or none if its destination is away, and holds it back for a pause, in
-- microseconds.
UPDATE idem.outbox AS o
SET held = true, attempts = coalesce(o.attempts, 0) OPERATOR(pg_catalog.+) b.count,
    next_at = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) ('1 microsecond'::pg_catalog.interval OPERATOR(pg_catalog.*) b.pause),
    class = b.class, reason = b.reason
FROM (SELECT pg_catalog.unnest((@seqs::pg_catalog.text)::pg_catalog.int8[]) AS seq, pg_catalog.unnest((@pauses::pg_catalog.text)::pg_catalog.float8[]) AS pause,
             pg_catalog.unnest((@counts::pg_catalog.text)::pg_catalog.int4[]) AS count,
             pg_catalog.unnest((@classes::pg_catalog.text)::pg_catalog.text[]) AS class, pg_catalog.unnest((@reasons::pg_catalog.text)::pg_catalog.text[]) AS reason) b
WHERE o.held OPERATOR(pg_catalog.=) ANY ('{f,t}'::pg_catalog.bool[]) AND o.seq OPERATOR(pg_catalog.=) b.seq;

-- name: BuryUnpublished :exec
-- BuryUnpublished makes a message a dead letter.
WITH gone AS (
    DELETE FROM idem.outbox
    WHERE held OPERATOR(pg_catalog.=) ANY ('{f,t}'::pg_catalog.bool[]) AND seq OPERATOR(pg_catalog.=) @seq::pg_catalog.int8
    RETURNING created_at, id, aggregatetype, aggregateid, type
)
INSERT INTO idem.dead_letters AS d (side, consumer, source, id, key, type, payload, headers, sealed_by, class, reason, attempts, created_at, died_at)
SELECT 'outbox', '', gone.aggregatetype, gone.id::pg_catalog.text, gone.aggregateid, gone.type, @payload::pg_catalog.bytea,
       (sqlc.narg(headers)::pg_catalog.text)::pg_catalog.jsonb, sqlc.narg(sealed_by)::pg_catalog.text, @class::pg_catalog.text, @reason::pg_catalog.text,
       @attempts::pg_catalog.int4, gone.created_at, pg_catalog.clock_timestamp()
FROM gone
ON CONFLICT (side, consumer, source, id) DO UPDATE
SET key = EXCLUDED.key, type = EXCLUDED.type, payload = EXCLUDED.payload, headers = EXCLUDED.headers, sealed_by = EXCLUDED.sealed_by,
    class = EXCLUDED.class, reason = EXCLUDED.reason, attempts = EXCLUDED.attempts, created_at = EXCLUDED.created_at, died_at = EXCLUDED.died_at;

-- name: OutboxStats :one
-- OutboxStats tells how far the outbox is behind. It counts up to a limit.
SELECT pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS read_at,
       pg_catalog.timestamptz_send((SELECT r.created_at FROM idem.outbox r WHERE NOT r.held ORDER BY r.seq LIMIT 1))::pg_catalog.bytea AS oldest,
       pg_catalog.timestamptz_send((SELECT pg_catalog.min(r.created_at) FROM (
            SELECT h.created_at FROM idem.outbox h WHERE h.held LIMIT @most::pg_catalog.int4) r))::pg_catalog.bytea AS oldest_held,
       pg_catalog.timestamptz_send((SELECT d.not_before FROM idem.delayed d ORDER BY d.not_before LIMIT 1))::pg_catalog.bytea AS overdue,
       pg_catalog.timestamptz_send((SELECT d.not_before FROM idem.delayed d
            WHERE d.not_before OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp()) ORDER BY d.not_before LIMIT 1))::pg_catalog.bytea AS next_due,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.outbox r WHERE NOT r.held LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS waiting,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.delayed d
            WHERE d.not_before OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp()) LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS due,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.delayed d
            WHERE d.not_before OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp()) LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS delayed,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.outbox r WHERE r.held LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS held,
       (SELECT pg_catalog.count(*) FROM (
            SELECT DISTINCT r.aggregatetype, r.aggregateid, CASE WHEN r.aggregateid OPERATOR(pg_catalog.=) '' THEN r.seq ELSE 0 END
            FROM (SELECT * FROM idem.outbox h WHERE h.held LIMIT @most::pg_catalog.int4) r) k)::pg_catalog.int8 AS held_keys,
       (SELECT pg_catalog.count(*) FROM (
            SELECT FROM idem.dead_letters d WHERE d.side OPERATOR(pg_catalog.=) 'outbox' LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS dead;
