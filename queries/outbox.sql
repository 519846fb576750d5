-- name: AddMessages :exec
-- AddMessages adds messages in the order of the arrays. The transaction has its id before the first message has its place: a
-- relay waits for what is missing by the transactions that were under way. Where commits do not wait for the disk, that of this transaction does: a
-- relay publishes what is committed, and a crash of the server must not take it back. The name of the setting is in two parts, as in HoldKey.
-- @wrapped
-- @pgx
INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
SELECT clock_timestamp(), m.id::uuid, m.topic, m.key, m.type, m.payload,
       CASE WHEN m.headers <> '' THEN m.headers::jsonb END,
       CASE WHEN m.trace <> '' THEN m.trace END
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@topics::text[]) AS topic,
             unnest(@keys::text[]) AS key, unnest(@types::text[]) AS type,
             unnest(@payloads::bytea[]) AS payload, unnest(@headers::text[]) AS headers,
             unnest(@traces::text[]) AS trace, pg_current_xact_id() AS xid) m
WHERE m.xid IS NOT NULL
  AND (SELECT coalesce(CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END, '') IS NOT NULL);

-- name: AddDelayed :exec
-- AddDelayed is AddMessages for messages of which some are not to be published before a moment. What is due at once goes where it
-- would go without one.
-- @wrapped
-- @pgx
WITH m AS MATERIALIZED (
    SELECT u.id::uuid AS id, u.topic, u.key, u.type, u.payload,
           CASE WHEN u.headers <> '' THEN u.headers::jsonb END AS headers,
           CASE WHEN u.trace <> '' THEN u.trace END AS trace,
           CASE WHEN u.moment <> '' THEN u.moment::timestamptz END AS not_before, c.at
    FROM (SELECT unnest(@ids::text[]) AS id, unnest(@topics::text[]) AS topic,
                 unnest(@keys::text[]) AS key, unnest(@types::text[]) AS type,
                 unnest(@payloads::bytea[]) AS payload, unnest(@headers::text[]) AS headers,
                 unnest(@traces::text[]) AS trace, unnest(@moments::text[]) AS moment) u
    CROSS JOIN (SELECT clock_timestamp() AS at OFFSET 0) c
    WHERE (SELECT coalesce(CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END, '') IS NOT NULL)
), later AS (
    INSERT INTO idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
    SELECT m.not_before, m.at, m.id, m.topic, m.key, m.type, m.payload, m.headers, m.trace
    FROM m
    WHERE m.not_before > m.at
)
INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
SELECT m.at, m.id, m.topic, m.key, m.type, m.payload, m.headers, m.trace
FROM m
WHERE m.not_before IS NULL OR m.not_before <= m.at;

-- name: NextDelayed :one
-- NextDelayed tells in how many microseconds the first delayed message is due, an hour at most, and how long it took to find out:
-- beside an old snapshot, all that has been moved since is in the way.
SELECT (least(coalesce(extract(epoch FROM ((SELECT d.not_before FROM idem.delayed d ORDER BY d.not_before LIMIT 1)
                                           - clock_timestamp())), 3600), 3600)
        * 1000000)::int8 AS due,
       (extract(epoch FROM (clock_timestamp() - statement_timestamp()))
        * 1000000)::int8 AS took;

-- name: MoveDelayed :one
-- MoveDelayed inserts messages in the outbox that are due, from a moment on, in the order of their due times: as many as room says, or as
-- have so many octets. One transaction does so at a time, or the next ones would overtake them.
WITH now AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(1768187247, -2) AS mine, clock_timestamp() AS at
), due AS MATERIALIZED (
    SELECT o.not_before, o.seq,
           sum(o.octets) OVER (ORDER BY o.not_before, o.seq ROWS UNBOUNDED PRECEDING) - o.octets AS before
    FROM (
        SELECT d.not_before, d.seq, coalesce(octet_length(d.payload), 0) AS octets
        FROM idem.delayed d
        WHERE d.not_before >= (@from_moment::text)::timestamptz
          AND d.not_before <= (SELECT n.at FROM now n) AND (SELECT n.mine FROM now n)
        ORDER BY d.not_before, d.seq
        LIMIT @room
    ) o
), last AS MATERIALIZED (
    SELECT t.not_before, t.seq FROM due t WHERE t.before < @octets::int8 ORDER BY t.not_before DESC, t.seq DESC LIMIT 1
), gone AS (
    DELETE FROM idem.delayed d
    WHERE d.not_before >= (@from_moment::text)::timestamptz
      AND (d.not_before, d.seq) <= ((SELECT l.not_before FROM last l), (SELECT l.seq FROM last l))
    RETURNING d.not_before, d.seq, d.id, d.aggregatetype, d.aggregateid, d.type, d.payload, d.headers, d.tracingspancontext
), put AS (
    INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers, tracingspancontext)
    SELECT g.not_before, g.id, g.aggregatetype, g.aggregateid, g.type, g.payload, g.headers, g.tracingspancontext
    FROM (SELECT * FROM gone ORDER BY gone.not_before, gone.seq) g
    RETURNING 1
)
SELECT n.mine, (SELECT count(*) FROM put)::int8 AS moved,
       ((SELECT l.not_before FROM last l))::timestamptz AS until
FROM now n;

-- name: LimitRelay :exec
-- LimitRelay begins every transaction of a relay. The table is empty or has millions of rows, and no statistics tell which:
-- only a scan of the index is left to the planner.
SELECT set_config('statement_timeout', '5min', true),
       set_config('lock_timeout', '10s', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_indexscan', 'on', true),
       set_config('jit', 'off', true);

-- name: ListWriters :many
-- ListWriters lists the other transactions that can have a message in the outbox which is not committed yet. An INSERT locks the
-- table before it takes a place, and holds the lock until its rows are visible or gone. A prepared transaction has no pid, and may
-- have another name than before.
-- @row Writer
SELECT l.virtualtransaction::text AS name, (l.pid IS NULL)::bool AS prepared
FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.relation = 'idem.outbox'::regclass::oid
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND l.mode = 'RowExclusiveLock' AND l.granted
  AND (l.pid IS NULL OR l.pid <> pg_backend_pid());

-- name: ReadMessages :many
-- ReadMessages reads what is not held, in gaps and beyond a position: as much as room says, or as have so many octets. What is
-- of another stream or relay comes without payload, so that it is no gap. So does what is of the listed topics, or, with only, of
-- all others.
-- @wrapped
-- @in Stream Stream
-- @out Queued
SELECT m.seq, m.mine, m.whole, m.octets, m.id, m.topic, m.key, m.type, (CASE WHEN m.whole THEN m.payload END)::bytea AS payload,
       (CASE WHEN m.whole THEN coalesce(m.headers::text, '') ELSE '' END)::text AS headers, m.created_at
FROM (
    SELECT o.seq, o.mine, o.whole, o.octets, o.id, o.topic, o.key, o.type, o.payload, o.headers, o.created_at,
           sum(o.octets) OVER (ORDER BY o.seq ROWS UNBOUNDED PRECEDING) - o.octets AS before
    FROM (
        SELECT x.seq, x.mine, (x.mine AND x.free)::bool AS whole, (x.id::text)::text AS id, x.aggregatetype AS topic, x.aggregateid AS key, x.type, x.payload, x.headers,
               x.created_at,
               (CASE WHEN x.mine AND x.free THEN coalesce(octet_length(x.payload), 0) + coalesce(octet_length(x.headers::text), 0) ELSE 0 END)::int4 AS octets
        FROM (
            SELECT u.seq, u.id, u.aggregatetype, u.aggregateid, u.type, u.payload, u.headers, u.created_at,
                   ((@streams::int4 = 1
                    OR ((CASE WHEN u.aggregateid = '' THEN u.seq
                              ELSE hashtext(u.aggregatetype || '/' || u.aggregateid)::int8 END
                         & 15::int8) % @streams) = @stream::int4)::bool
                   AND (@every
                        OR u.aggregatetype ~~ ANY ((@topics::text)::text[])
                           AND NOT u.aggregatetype ~~ ANY ((@foreign_topics::text)::text[])))::bool AS mine,
                   ((u.aggregatetype = ANY ((@listed::text)::text[])) = @only_listed::bool)::bool AS free
            FROM (
                SELECT i.seq, i.id, i.aggregatetype, i.aggregateid, i.type, i.payload, i.headers, i.created_at
                FROM (SELECT unnest((@lows::text)::int8[]) AS low, unnest((@highs::text)::int8[]) AS high) g
                CROSS JOIN LATERAL (
                    SELECT r.seq, r.id, r.aggregatetype, r.aggregateid, r.type, r.payload, r.headers, r.created_at
                    FROM idem.outbox r
                    WHERE NOT r.held AND r.seq >= g.low AND r.seq <= g.high
                    ORDER BY r.seq
                    LIMIT @room::int4
                ) i
                UNION ALL
                (SELECT r.seq, r.id, r.aggregatetype, r.aggregateid, r.type, r.payload, r.headers, r.created_at
                 FROM idem.outbox r
                 WHERE NOT r.held AND r.seq > @after::int8
                 ORDER BY r.seq
                 LIMIT @room::int4)
            ) u
            ORDER BY u.seq
            LIMIT @room::int4
        ) x
    ) o
) m
WHERE m.before < @octets::int8
ORDER BY m.seq;

-- name: ReadHeld :many
-- ReadHeld reads the first messages of keys that are held back, as many of each as its run says. A message without a key is
-- known by its place: low and high are that place, and of a key they are everything.
-- @wrapped
-- @out Queued
SELECT m.seq, m.id, m.topic, m.key, m.type, m.payload, m.headers, m.created_at, m.attempts, m.octets
FROM (
    SELECT o.seq, o.id, o.topic, o.key, o.type, o.payload, o.headers, o.created_at, o.attempts, o.octets,
           sum(o.octets) OVER (ORDER BY o.seq ROWS UNBOUNDED PRECEDING) - o.octets AS before
    FROM (
        SELECT unnest((@topics::text)::text[]) AS topic, unnest((@keys::text)::text[]) AS key,
               unnest((@lows::text)::int8[]) AS low, unnest((@highs::text)::int8[]) AS high,
               unnest((@runs::text)::int4[]) AS run
    ) k
    CROSS JOIN LATERAL (
        SELECT r.seq, (r.id::text)::text AS id, r.aggregatetype AS topic, r.aggregateid AS key, r.type, r.payload,
               coalesce(r.headers::text, '')::text AS headers,
               r.created_at,
               coalesce(r.attempts, 0)::int4 AS attempts,
               (coalesce(octet_length(r.payload), 0) + coalesce(octet_length(r.headers::text), 0))::int4 AS octets
        FROM idem.outbox r
        WHERE r.held AND r.aggregatetype = k.topic AND r.aggregateid = k.key
          AND r.seq >= k.low AND r.seq <= k.high
        ORDER BY r.seq
        LIMIT k.run
    ) o
) m
WHERE m.before < @octets::int8
ORDER BY m.seq;

-- name: ListHeld :many
-- ListHeld tells which keys are held back, and when the first message of each is tried again, in microseconds.
-- @in Stream Stream
-- @out HeldKey
-- @row HeldBack
SELECT h.topic, h.key, h.place, h.attempts, h.due
FROM (
    SELECT DISTINCT ON (r.aggregatetype, r.aggregateid, CASE WHEN r.aggregateid = '' THEN r.seq ELSE 0 END)
           r.aggregatetype AS topic, r.aggregateid AS key,
           (CASE WHEN r.aggregateid = '' THEN r.seq ELSE 0 END)::int8 AS place,
           coalesce(r.attempts, 0)::int4 AS attempts,
           (coalesce(date_part('epoch', r.next_at - clock_timestamp()), 0)
            * 1000000)::int8 AS due
    FROM idem.outbox r
    WHERE r.held
      AND (@streams::int4 = 1
           OR ((CASE WHEN r.aggregateid = '' THEN r.seq
                     ELSE hashtext(r.aggregatetype || '/' || r.aggregateid)::int8 END
                & 15::int8) % @streams) = @stream::int4)
      AND (@every::bool
           OR r.aggregatetype ~~ ANY ((@topics::text)::text[])
              AND NOT r.aggregatetype ~~ ANY ((@foreign_topics::text)::text[]))
    ORDER BY r.aggregatetype, r.aggregateid, CASE WHEN r.aggregateid = '' THEN r.seq ELSE 0 END, r.seq
) h;

-- name: DeletePublished :exec
-- DeletePublished removes messages that were published.
DELETE FROM idem.outbox
WHERE held = ANY ('{f,t}'::bool[]) AND seq = ANY ((@seqs::text)::int8[]);

-- name: KeepPublished :exec
-- KeepPublished removes messages that were published, and keeps them elsewhere for a time, with or without what they say.
WITH gone AS (
    DELETE FROM idem.outbox
    WHERE held = ANY ('{f,t}'::bool[]) AND seq = ANY ((@seqs::text)::int8[])
    RETURNING seq, created_at, id, aggregatetype, aggregateid, type, payload, headers
)
INSERT INTO idem.published (id, seq, created_at, published_at, expires_at, aggregatetype, aggregateid, type, payload, headers)
SELECT id, seq, created_at, clock_timestamp(), clock_timestamp() + @retention::interval,
       aggregatetype, aggregateid, type, CASE WHEN @whole::bool THEN payload END, CASE WHEN @whole THEN headers END
FROM gone
ON CONFLICT (id) DO NOTHING;

-- name: HoldMessages :exec
-- HoldMessages holds messages back because they are behind another one.
UPDATE idem.outbox SET held = true
WHERE NOT held AND seq = ANY ((@seqs::text)::int8[]);

-- name: BlameMessages :exec
-- BlameMessages counts an attempt of each message, or none if its destination is away, and holds it back for a pause, in
-- microseconds.
UPDATE idem.outbox AS o
SET held = true, attempts = coalesce(o.attempts, 0) + b.count,
    next_at = clock_timestamp() + ('1 microsecond'::interval * b.pause),
    class = b.class, reason = b.reason
FROM (SELECT unnest((@seqs::text)::int8[]) AS seq, unnest((@pauses::text)::float8[]) AS pause,
             unnest((@counts::text)::int4[]) AS count,
             unnest((@classes::text)::text[]) AS class, unnest((@reasons::text)::text[]) AS reason) b
WHERE o.held = ANY ('{f,t}'::bool[]) AND o.seq = b.seq;

-- name: BuryUnpublished :exec
-- BuryUnpublished makes a message a dead letter.
-- @in Contents Contents
WITH gone AS (
    DELETE FROM idem.outbox
    WHERE held = ANY ('{f,t}'::bool[]) AND seq = @seq
    RETURNING created_at, id, aggregatetype, aggregateid, type
)
INSERT INTO idem.dead_letters AS d (side, consumer, source, id, key, type, payload, headers, sealed_by, class, reason, attempts, created_at, died_at)
SELECT 'outbox', '', gone.aggregatetype, gone.id::text, gone.aggregateid, gone.type, @payload,
       (sqlc.narg(headers)::text)::jsonb, sqlc.narg(sealed_by), @class, @reason,
       @attempts::int4, gone.created_at, clock_timestamp()
FROM gone
ON CONFLICT (side, consumer, source, id) DO UPDATE
SET key = EXCLUDED.key, type = EXCLUDED.type, payload = EXCLUDED.payload, headers = EXCLUDED.headers, sealed_by = EXCLUDED.sealed_by,
    class = EXCLUDED.class, reason = EXCLUDED.reason, attempts = EXCLUDED.attempts, created_at = EXCLUDED.created_at, died_at = EXCLUDED.died_at;

-- name: OutboxStats :one
-- OutboxStats tells how far the outbox is behind. It counts up to a limit.
SELECT clock_timestamp() AS read_at,
       ((SELECT r.created_at FROM idem.outbox r WHERE NOT r.held ORDER BY r.seq LIMIT 1))::timestamptz AS oldest,
       ((SELECT min(r.created_at) FROM (
            SELECT h.created_at FROM idem.outbox h WHERE h.held LIMIT @most) r))::timestamptz AS oldest_held,
       ((SELECT d.not_before FROM idem.delayed d ORDER BY d.not_before LIMIT 1))::timestamptz AS overdue,
       ((SELECT d.not_before FROM idem.delayed d
            WHERE d.not_before > (SELECT clock_timestamp()) ORDER BY d.not_before LIMIT 1))::timestamptz AS next_due,
       (SELECT count(*) FROM (SELECT FROM idem.outbox r WHERE NOT r.held LIMIT @most) w)::int8 AS waiting,
       (SELECT count(*) FROM (SELECT FROM idem.delayed d
            WHERE d.not_before <= (SELECT clock_timestamp()) LIMIT @most) w)::int8 AS due,
       (SELECT count(*) FROM (SELECT FROM idem.delayed d
            WHERE d.not_before > (SELECT clock_timestamp()) LIMIT @most) w)::int8 AS delayed,
       (SELECT count(*) FROM (SELECT FROM idem.outbox r WHERE r.held LIMIT @most) w)::int8 AS held,
       (SELECT count(*) FROM (
            SELECT DISTINCT r.aggregatetype, r.aggregateid, CASE WHEN r.aggregateid = '' THEN r.seq ELSE 0 END
            FROM (SELECT * FROM idem.outbox h WHERE h.held LIMIT @most) r) k)::int8 AS held_keys,
       (SELECT count(*) FROM (
            SELECT FROM idem.dead_letters d WHERE d.side = 'outbox' LIMIT @most::int4) w)::int8 AS dead;
