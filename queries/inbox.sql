-- name: BeginMessages :one
-- BeginMessages says, until this transaction ends, whose it is, as a claim of a key does, and bounds how long the statements that
-- follow wait for a lock: until Calm.
SELECT coalesce(pg_catalog.current_setting('idem.claim', true), '')::pg_catalog.text AS previous,
       pg_catalog.set_config('idem.claim', @operation_id::pg_catalog.text, true)::pg_catalog.text AS claim,
       pg_catalog.set_config('idem.lock_timeout', pg_catalog.current_setting('lock_timeout'), true)::pg_catalog.text AS locks,
       pg_catalog.set_config('lock_timeout', @patience::pg_catalog.text, true)::pg_catalog.text AS lock_timeout;

-- name: ClaimMessages :many
-- ClaimMessages writes down as handled those messages of which nothing is known, and returns them. That a message is handled once
-- rests on the primary key alone. They are inserted in one order, whatever that of their delivery, so that no two of these wait
-- for each other. hashes has 32 bytes for each.
INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at)
SELECT @consumer::pg_catalog.text, u.source, u.id,
       pg_catalog.substring(@hashes::pg_catalog.bytea, ((u.n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.*) 32 OPERATOR(pg_catalog.+) 1)::pg_catalog.int4, 32),
       'handled', pg_catalog.statement_timestamp(),
       pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval
FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, n)
ORDER BY u.source COLLATE pg_catalog."C", u.id COLLATE pg_catalog."C"
ON CONFLICT (consumer, source, id) DO NOTHING
RETURNING m.source, m.id, pg_catalog.timestamptz_send(m.since)::pg_catalog.bytea AS since;

-- name: LoadMessages :many
-- LoadMessages tells what is known of messages. It is a statement of its own because the snapshot of the claim may be older than
-- the commit of whoever has them; and asks only for those that were not claimed, which is what keeps strangers apart under
-- SERIALIZABLE. Each is sought by the index: OFFSET keeps the planner from reading the table.
SELECT m.source, m.id, m.same_hash::pg_catalog.bool AS same_hash, m.state, m.attempts::pg_catalog.int4 AS attempts,
       m.begun::pg_catalog.int4 AS begun, m.alone::pg_catalog.int4 AS alone, m.hindered::pg_catalog.int4 AS hindered, m.remaining::pg_catalog.int8 AS remaining, m.since::pg_catalog.bytea AS since
FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, n)
CROSS JOIN LATERAL (
    SELECT i.source, i.id, i.state, coalesce(i.attempts, 0) AS attempts, coalesce(i.begun, 0) AS begun, coalesce(i.alone, 0) AS alone,
           coalesce(i.hindered, 0) AS hindered,
           i.hash OPERATOR(pg_catalog.=) pg_catalog.substring(@hashes::pg_catalog.bytea,
               ((u.n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.*) 32 OPERATOR(pg_catalog.+) 1)::pg_catalog.int4, 32) AS same_hash,
           coalesce(pg_catalog.ceil(pg_catalog.date_part('epoch', i.retry_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())
               OPERATOR(pg_catalog.*) 1000000), 0) AS remaining,
           pg_catalog.timestamptz_send(i.since) AS since
    FROM idem.inbox i
    WHERE i.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
      AND i.source OPERATOR(pg_catalog.=) u.source AND i.id OPERATOR(pg_catalog.=) u.id
    OFFSET 0
) m;

-- name: ResumeMessages :many
-- ResumeMessages writes down as handled messages whose next attempt is due, and returns them. Their rows are locked in the order
-- in which messages are claimed. What was a dead letter, and is tried again, is none any more.
WITH due AS (
    SELECT m.consumer, m.source, m.id
    FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                    pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) AS u (source, id)
    JOIN idem.inbox m ON m.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
     AND m.source OPERATOR(pg_catalog.=) u.source AND m.id OPERATOR(pg_catalog.=) u.id
    WHERE m.state OPERATOR(pg_catalog.=) 'failing' AND m.retry_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
    ORDER BY m.source, m.id
    FOR UPDATE OF m
), revived AS (
    DELETE FROM idem.dead_letters l
    USING (
        SELECT o.consumer, o.source, o.id
        FROM due
        JOIN idem.dead_letters o ON o.side OPERATOR(pg_catalog.=) 'inbox' AND o.consumer OPERATOR(pg_catalog.=) due.consumer
         AND o.source OPERATOR(pg_catalog.=) due.source AND o.id OPERATOR(pg_catalog.=) due.id
        ORDER BY o.source, o.id
        FOR UPDATE OF o
    ) dead
    WHERE l.side OPERATOR(pg_catalog.=) 'inbox' AND l.consumer OPERATOR(pg_catalog.=) dead.consumer
      AND l.source OPERATOR(pg_catalog.=) dead.source AND l.id OPERATOR(pg_catalog.=) dead.id
)
UPDATE idem.inbox m
SET state = 'handled', since = pg_catalog.statement_timestamp(),
    expires_at = pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval,
    attempts = NULL, begun = NULL, alone = NULL, hindered = NULL, retry_at = NULL, key = NULL
FROM due
WHERE m.consumer OPERATOR(pg_catalog.=) due.consumer AND m.source OPERATOR(pg_catalog.=) due.source AND m.id OPERATOR(pg_catalog.=) due.id
RETURNING m.source, m.id, pg_catalog.timestamptz_send(m.since)::pg_catalog.bytea AS since;

-- name: KeepMessages :one
-- KeepMessages goes ahead of COMMIT. It divides by zero, so that the COMMIT is not reached, if this is not the transaction that
-- has claimed: a handler ended that, and began another one.
SELECT (1 OPERATOR(pg_catalog./) (CASE
    WHEN pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) @operation_id::pg_catalog.text THEN 1 ELSE 0
    END)::pg_catalog.int4)::pg_catalog.int4 AS one;

-- name: CountFailure :one
-- CountFailure counts an attempt that has failed, or was hindered, and says when the next one is due. No row: the message is
-- handled or dead, or another one has its id.
INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts, hindered, retry_at, key)
VALUES (@consumer::pg_catalog.text, @source::pg_catalog.text, @id::pg_catalog.text, @hash::pg_catalog.bytea, 'failing',
        pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval,
        @attempts::pg_catalog.int4, @hindered::pg_catalog.int4,
        pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @pause::pg_catalog.interval,
        @key::pg_catalog.text)
ON CONFLICT (consumer, source, id) DO UPDATE
SET attempts = coalesce(m.attempts, 0) OPERATOR(pg_catalog.+) EXCLUDED.attempts, begun = NULL, alone = NULL,
    hindered = coalesce(m.hindered, 0) OPERATOR(pg_catalog.+) EXCLUDED.hindered,
    retry_at = EXCLUDED.retry_at, expires_at = EXCLUDED.expires_at, key = EXCLUDED.key
WHERE m.state OPERATOR(pg_catalog.=) 'failing' AND m.hash OPERATOR(pg_catalog.=) EXCLUDED.hash
RETURNING coalesce(m.attempts, 0)::pg_catalog.int4 AS attempts;

-- name: BuryMessage :one
-- BuryMessage makes a message a dead letter. No row: the message is handled or dead already, or another one has its id.
WITH buried AS (
    INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts)
    VALUES (@consumer::pg_catalog.text, @source::pg_catalog.text, @id::pg_catalog.text, @hash::pg_catalog.bytea, 'dead',
            pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval,
            @attempts::pg_catalog.int4)
    ON CONFLICT (consumer, source, id) DO UPDATE
    SET state = EXCLUDED.state, since = EXCLUDED.since, expires_at = EXCLUDED.expires_at, attempts = EXCLUDED.attempts,
        begun = NULL, alone = NULL, hindered = NULL, retry_at = NULL, key = NULL
    WHERE m.state OPERATOR(pg_catalog.=) 'failing' AND m.hash OPERATOR(pg_catalog.=) EXCLUDED.hash
    RETURNING m.consumer, m.source, m.id, m.since
)
INSERT INTO idem.dead_letters AS l (side, consumer, source, id, key, type, payload, headers, sealed_by, class, reason, attempts, created_at, died_at)
SELECT 'inbox', b.consumer, b.source, b.id, @key::pg_catalog.text, @type::pg_catalog.text, @payload::pg_catalog.bytea,
       (sqlc.narg(headers)::pg_catalog.text)::pg_catalog.jsonb, sqlc.narg(sealed_by)::pg_catalog.text, @class::pg_catalog.text, @reason::pg_catalog.text, @attempts::pg_catalog.int4, b.since, b.since
FROM buried b
ON CONFLICT (side, consumer, source, id) DO UPDATE
SET key = EXCLUDED.key, type = EXCLUDED.type, payload = EXCLUDED.payload, headers = EXCLUDED.headers, sealed_by = EXCLUDED.sealed_by,
    class = EXCLUDED.class, reason = EXCLUDED.reason, attempts = EXCLUDED.attempts, died_at = EXCLUDED.died_at, redrive_at = NULL
RETURNING l.attempts;

-- name: ReleaseMessages :exec
-- ReleaseMessages forgets messages that were written down as handled at that moment, and were not: their handler has committed
-- that before they were. The moment travels as the microseconds since 1970.
DELETE FROM idem.inbox m
USING ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                 pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) AS u (source, id)
WHERE m.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
  AND m.source OPERATOR(pg_catalog.=) u.source AND m.id OPERATOR(pg_catalog.=) u.id
  AND m.state OPERATOR(pg_catalog.=) 'handled'
  AND m.since OPERATOR(pg_catalog.=) (pg_catalog.to_timestamp(0) OPERATOR(pg_catalog.+) @claimed::pg_catalog.interval);

-- name: EnterMessages :exec
-- EnterMessages writes down messages of which nothing is known, for AnnounceMessages. Their order is kept, for who waits for those
-- before it. It and ClaimMessages wait for what others insert, in one order, and then AnnounceMessages and ResumeMessages for what
-- others have locked, in one order: one statement that waited for both would deadlock with who has inserted and waits for a lock.
INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, begun, alone, retry_at, key)
SELECT @consumer::pg_catalog.text, u.source, u.id,
       pg_catalog.substring(@hashes::pg_catalog.bytea, ((u.n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.*) 32 OPERATOR(pg_catalog.+) 1)::pg_catalog.int4, 32),
       'failing', pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+)
           (u.n::pg_catalog.float8 OPERATOR(pg_catalog.*) '1 microsecond'::pg_catalog.interval),
       pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval, 0, 0, 0, pg_catalog.statement_timestamp(), u.key
FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[]),
                pg_catalog.unnest((@keys::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, key, n)
ORDER BY u.source COLLATE pg_catalog."C", u.id COLLATE pg_catalog."C"
ON CONFLICT (consumer, source, id) DO NOTHING;

-- name: AnnounceMessages :many
-- AnnounceMessages says, before they begin, that attempts at messages do, together or, of one message, alone.
-- Those that are handled, dead or not due are not returned.
WITH due AS (
    SELECT m.consumer, m.source, m.id
    FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                    pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, n)
    JOIN idem.inbox m ON m.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
     AND m.source OPERATOR(pg_catalog.=) u.source AND m.id OPERATOR(pg_catalog.=) u.id
    WHERE m.state OPERATOR(pg_catalog.=) 'failing' AND m.retry_at OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
      AND m.hash OPERATOR(pg_catalog.=) pg_catalog.substring(@hashes::pg_catalog.bytea,
          ((u.n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.*) 32 OPERATOR(pg_catalog.+) 1)::pg_catalog.int4, 32)
    ORDER BY m.source, m.id
    FOR UPDATE OF m
)
UPDATE idem.inbox m
SET begun = coalesce(m.begun, 0) OPERATOR(pg_catalog.+) (NOT @alone::pg_catalog.bool)::pg_catalog.int4,
    alone = coalesce(m.alone, 0) OPERATOR(pg_catalog.+) (@alone::pg_catalog.bool)::pg_catalog.int4,
    expires_at = pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) @retention::pg_catalog.interval
FROM due
WHERE m.consumer OPERATOR(pg_catalog.=) due.consumer AND m.source OPERATOR(pg_catalog.=) due.source AND m.id OPERATOR(pg_catalog.=) due.id
RETURNING m.source, m.id;

-- name: WithdrawMessages :exec
-- WithdrawMessages takes back what was announced: the attempts have ended, and nobody is to blame.
UPDATE idem.inbox m
SET begun = m.begun OPERATOR(pg_catalog.-) (NOT @alone::pg_catalog.bool)::pg_catalog.int4,
    alone = m.alone OPERATOR(pg_catalog.-) (@alone::pg_catalog.bool)::pg_catalog.int4
FROM (
    SELECT i.consumer, i.source, i.id
    FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                    pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) AS u (source, id)
    JOIN idem.inbox i ON i.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
     AND i.source OPERATOR(pg_catalog.=) u.source AND i.id OPERATOR(pg_catalog.=) u.id
    WHERE i.state OPERATOR(pg_catalog.=) 'failing'
      AND (CASE WHEN @alone::pg_catalog.bool THEN i.alone ELSE i.begun END) OPERATOR(pg_catalog.>) 0
    ORDER BY i.source, i.id
    FOR UPDATE OF i
) announced
WHERE m.consumer OPERATOR(pg_catalog.=) announced.consumer AND m.source OPERATOR(pg_catalog.=) announced.source
  AND m.id OPERATOR(pg_catalog.=) announced.id;

-- name: FailingMessages :many
-- FailingMessages tells which messages of these keys are to be tried again, by the index that has those alone.
SELECT f.source, f.key::pg_catalog.text AS key, f.id, f.remaining::pg_catalog.int8 AS remaining, f.since::pg_catalog.bytea AS since
FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                pg_catalog.unnest((@keys::pg_catalog.text)::pg_catalog.text[])) AS u (source, key)
CROSS JOIN LATERAL (
    SELECT i.source, i.key, i.id,
           coalesce(pg_catalog.ceil(pg_catalog.date_part('epoch', i.retry_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())
               OPERATOR(pg_catalog.*) 1000000), 0) AS remaining,
           pg_catalog.timestamptz_send(i.since) AS since
    FROM idem.inbox i
    WHERE i.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text AND i.source OPERATOR(pg_catalog.=) u.source
      AND i.key OPERATOR(pg_catalog.=) u.key AND i.state OPERATOR(pg_catalog.=) 'failing'
    OFFSET 0
) f
ORDER BY 5, 3;

-- name: RedriveMessage :one
-- RedriveMessage lets a dead letter be tried again: from its own payload, or when it is delivered.
WITH marked AS (
    UPDATE idem.dead_letters l SET redrive_at = pg_catalog.clock_timestamp()
    WHERE l.side OPERATOR(pg_catalog.=) 'inbox' AND l.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
      AND l.source OPERATOR(pg_catalog.=) @source::pg_catalog.text AND l.id OPERATOR(pg_catalog.=) @id::pg_catalog.text
    RETURNING l.consumer, l.source, l.id, l.key
), revived AS (
    UPDATE idem.inbox m
    SET state = 'failing', attempts = 0, begun = NULL, alone = NULL, hindered = NULL, retry_at = pg_catalog.clock_timestamp(), since = pg_catalog.clock_timestamp(),
        expires_at = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (m.expires_at OPERATOR(pg_catalog.-) m.since), key = marked.key
    FROM marked
    WHERE m.consumer OPERATOR(pg_catalog.=) marked.consumer AND m.source OPERATOR(pg_catalog.=) marked.source
      AND m.id OPERATOR(pg_catalog.=) marked.id AND m.state OPERATOR(pg_catalog.=) 'dead'
)
SELECT (pg_catalog.count(*) OPERATOR(pg_catalog.>) 0)::pg_catalog.bool AS known FROM marked;

-- name: RedrivenMessages :many
-- RedrivenMessages reads the dead letters of a consumer that are to be tried again, in the order in which a person has wanted it.
SELECT l.source, l.id, l.key, l.type, l.payload, coalesce(l.headers::pg_catalog.text, '')::pg_catalog.text AS headers,
       coalesce(l.sealed_by, '')::pg_catalog.text AS sealed_by
FROM idem.dead_letters l
WHERE l.side OPERATOR(pg_catalog.=) 'inbox' AND l.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text AND l.redrive_at IS NOT NULL
ORDER BY l.redrive_at, l.source, l.id
LIMIT @room::pg_catalog.int4;

-- name: ForgetRedriven :exec
-- ForgetRedriven removes dead letters that were tried again, and are handled.
DELETE FROM idem.dead_letters l
USING (
    SELECT o.consumer, o.source, o.id
    FROM ROWS FROM (pg_catalog.unnest((@sources::pg_catalog.text)::pg_catalog.text[]),
                    pg_catalog.unnest((@ids::pg_catalog.text)::pg_catalog.text[])) AS u (source, id)
    JOIN idem.dead_letters o ON o.side OPERATOR(pg_catalog.=) 'inbox' AND o.consumer OPERATOR(pg_catalog.=) @consumer::pg_catalog.text
     AND o.source OPERATOR(pg_catalog.=) u.source AND o.id OPERATOR(pg_catalog.=) u.id
    WHERE o.redrive_at IS NOT NULL
    ORDER BY o.source, o.id
    FOR UPDATE OF o
) dead
WHERE l.side OPERATOR(pg_catalog.=) 'inbox' AND l.consumer OPERATOR(pg_catalog.=) dead.consumer
  AND l.source OPERATOR(pg_catalog.=) dead.source AND l.id OPERATOR(pg_catalog.=) dead.id;

-- name: InboxStats :many
-- InboxStats tells what consumers have yet to handle, and what is dead. It reads no message that is handled.
SELECT s.consumer::pg_catalog.text AS consumer, pg_catalog.sum(s.failing)::pg_catalog.int8 AS failing,
       pg_catalog.timestamptz_send(pg_catalog.min(s.failing_since))::pg_catalog.bytea AS failing_since,
       pg_catalog.sum(s.dead)::pg_catalog.int8 AS dead,
       pg_catalog.timestamptz_send(pg_catalog.min(s.died_at))::pg_catalog.bytea AS died_at
FROM (
    SELECT m.consumer, pg_catalog.count(*) AS failing, pg_catalog.min(m.since) AS failing_since, 0 AS dead, NULL::pg_catalog.timestamptz AS died_at
    FROM idem.inbox m
    WHERE m.state OPERATOR(pg_catalog.=) 'failing'
    GROUP BY m.consumer
    UNION ALL
    SELECT l.consumer, 0, NULL, pg_catalog.count(*), pg_catalog.min(l.died_at)
    FROM idem.dead_letters l
    WHERE l.side OPERATOR(pg_catalog.=) 'inbox'
    GROUP BY l.consumer
) s
GROUP BY s.consumer
ORDER BY s.consumer;
