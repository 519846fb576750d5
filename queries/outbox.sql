-- name: AddMessages :exec
-- AddMessages inserts messages into the outbox in the order of the arrays. The transaction gets its
-- id before the first message gets its position: a relay waits for a missing position until the
-- transactions that were in progress have ended. AddMessages makes the COMMIT wait for the disk
-- where the session would not. A relay publishes committed messages, and a crash of the server must
-- not undo their commit. The name of the setting is written in two parts, as in HoldKey.
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
-- AddDelayed is AddMessages for messages of which some have a moment before which they must not be
-- published. It inserts these into idem.delayed. A message that is due at once goes into the
-- outbox.
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
-- NextDelayed returns in how many microseconds the first delayed message is due, an hour at most.
-- It also returns how long the statement took: while an old snapshot exists, it reads past all rows
-- that were moved since.
SELECT (least(coalesce(extract(epoch FROM ((SELECT d.not_before FROM idem.delayed d ORDER BY d.not_before LIMIT 1)
                                           - clock_timestamp())), 3600), 3600)
        * 1000000)::int8 AS due,
       (extract(epoch FROM (clock_timestamp() - statement_timestamp()))
        * 1000000)::int8 AS took;

-- name: MoveDelayed :one
-- MoveDelayed moves due messages into the outbox, in the order of their due times and beginning at
-- FromMoment. It moves up to Room messages, and stops after the message that reaches Octets. One
-- transaction at a time moves messages, because later messages could otherwise overtake earlier
-- ones.
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
-- LimitRelay sets the timeouts of a relay's transaction and leaves the planner only index scans.
-- Every transaction of a relay begins with it. The outbox is empty or has millions of rows, and no
-- statistics show which.
SELECT set_config('statement_timeout', '5min', true),
       set_config('lock_timeout', '10s', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_indexscan', 'on', true),
       set_config('jit', 'off', true);

-- name: ListWriters :many
-- ListWriters lists the other transactions that may have an uncommitted message in the outbox. An
-- INSERT locks the table before it takes a position, and holds the lock until its rows are visible
-- or rolled back. A prepared transaction has no pid, and its name may differ from the one that it
-- had before.
-- @row Writer
SELECT l.virtualtransaction::text AS name, (l.pid IS NULL)::bool AS prepared
FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.relation = 'idem.outbox'::regclass::oid
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND l.mode = 'RowExclusiveLock' AND l.granted
  AND (l.pid IS NULL OR l.pid <> pg_backend_pid());

-- name: ReadMessages :many
-- ReadMessages reads messages that are not held, in gaps and after a position. It reads up to Room
-- messages, and stops after the message that reaches Octets. A message of another stream or relay
-- comes without payload, so that its position is not a gap. So does a message of the listed topics
-- or, with OnlyListed, a message of any other topic.
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
-- ReadHeld reads the first messages of held keys, up to Runs messages of each key. A message
-- without a key is identified by its position: low and high are that position. For a key they cover
-- all positions.
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
-- ListHeld lists the held keys, and in how many microseconds the next attempt at the first message
-- of each is due.
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
-- DeletePublished deletes published messages from the outbox.
DELETE FROM idem.outbox
WHERE held = ANY ('{f,t}'::bool[]) AND seq = ANY ((@seqs::text)::int8[]);

-- name: KeepPublished :exec
-- KeepPublished moves published messages to idem.published for Retention, with or without payload
-- and headers.
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
-- HoldMessages marks messages as held because they wait behind another message.
UPDATE idem.outbox SET held = true
WHERE NOT held AND seq = ANY ((@seqs::text)::int8[]);

-- name: BlameMessages :exec
-- BlameMessages holds messages until their next attempt, after a pause in microseconds. It counts
-- an attempt of each message, or none if its destination is unavailable.
UPDATE idem.outbox AS o
SET held = true, attempts = coalesce(o.attempts, 0) + b.count,
    next_at = clock_timestamp() + ('1 microsecond'::interval * b.pause),
    class = b.class, reason = b.reason
FROM (SELECT unnest((@seqs::text)::int8[]) AS seq, unnest((@pauses::text)::float8[]) AS pause,
             unnest((@counts::text)::int4[]) AS count,
             unnest((@classes::text)::text[]) AS class, unnest((@reasons::text)::text[]) AS reason) b
WHERE o.held = ANY ('{f,t}'::bool[]) AND o.seq = b.seq;

-- name: BuryUnpublished :exec
-- BuryUnpublished dead-letters a message of the outbox.
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
-- OutboxStats reads the backlog of the outbox: the oldest messages and the numbers of messages.
-- Each count stops at Most.
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
