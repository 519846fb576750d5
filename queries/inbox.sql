-- name: BeginMessages :one
-- BeginMessages says, until this transaction ends, whose it is, as a claim of a key does, and bounds how long the statements that
-- follow wait for a lock: until Calm. Where commits do not wait for the disk, that of this transaction does: a broker forgets a message of which
-- it is told that it is done. The name of the setting is in two parts, as in HoldKey.
-- @prepared
SELECT coalesce(current_setting('idem.claim', true), '')::text AS previous,
       set_config('idem.claim', @execution_id, true) AS _,
       set_config('idem.lock_timeout', current_setting('lock_timeout'), true) AS _,
       set_config('lock_timeout', @patience, true) AS _,
       CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: ClaimMessages :many
-- ClaimMessages writes down as handled those messages of which nothing is known, and returns them. That a message is handled once
-- rests on the primary key alone. They are inserted in one order, whatever that of their delivery, so that no two of these wait
-- for each other. hashes has 32 bytes for each.
-- @prepared
INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at)
SELECT @consumer, u.source, u.id,
       substring(@hashes::bytea, ((u.n - 1) * 32 + 1)::int4, 32),
       'handled', statement_timestamp(),
       statement_timestamp() + @retention::interval
FROM ROWS FROM (unnest((@sources::text)::text[]),
                unnest((@ids::text)::text[])) WITH ORDINALITY AS u (source, id, n)
ORDER BY u.source COLLATE "C", u.id COLLATE "C"
ON CONFLICT (consumer, source, id) DO NOTHING
RETURNING m.source, m.id, m.since;

-- name: LoadMessages :many
-- LoadMessages tells what is known of messages. It is a statement of its own because the snapshot of the claim may be older than
-- the commit of the call that has them; and asks only for those that were not claimed, which is what keeps strangers apart under
-- SERIALIZABLE. Each is sought by the index: OFFSET keeps the planner from reading the table.
SELECT m.source, m.id, m.same_hash::bool AS same_hash, m.state, m.attempts::int4 AS attempts,
       m.begun::int4 AS begun, m.alone::int4 AS alone, m.hindered::int4 AS hindered, m.remaining::int8 AS remaining, m.since
FROM ROWS FROM (unnest((@sources::text)::text[]),
                unnest((@ids::text)::text[])) WITH ORDINALITY AS u (source, id, n)
CROSS JOIN LATERAL (
    SELECT i.source, i.id, i.state, coalesce(i.attempts, 0) AS attempts, coalesce(i.begun, 0) AS begun, coalesce(i.alone, 0) AS alone,
           coalesce(i.hindered, 0) AS hindered,
           i.hash = substring(@hashes::bytea,
               ((u.n - 1) * 32 + 1)::int4, 32) AS same_hash,
           coalesce(ceil(date_part('epoch', i.retry_at - clock_timestamp())
               * 1000000), 0) AS remaining,
           i.since
    FROM idem.inbox i
    WHERE i.consumer = @consumer
      AND i.source = u.source AND i.id = u.id
    OFFSET 0
) m;

-- name: ResumeMessages :many
-- ResumeMessages writes down as handled messages whose next attempt is due, and returns them. Their rows are locked in the order
-- in which messages are claimed. What was a dead letter, and is tried again, is none any more.
WITH due AS (
    SELECT m.consumer, m.source, m.id
    FROM ROWS FROM (unnest((@sources::text)::text[]),
                    unnest((@ids::text)::text[])) AS u (source, id)
    JOIN idem.inbox m ON m.consumer = @consumer
     AND m.source = u.source AND m.id = u.id
    WHERE m.state = 'failing' AND m.retry_at <= clock_timestamp()
    ORDER BY m.source, m.id
    FOR UPDATE OF m
), revived AS (
    DELETE FROM idem.dead_letters l
    USING (
        SELECT o.consumer, o.source, o.id
        FROM due
        JOIN idem.dead_letters o ON o.side = 'inbox' AND o.consumer = due.consumer
         AND o.source = due.source AND o.id = due.id
        ORDER BY o.source, o.id
        FOR UPDATE OF o
    ) dead
    WHERE l.side = 'inbox' AND l.consumer = dead.consumer
      AND l.source = dead.source AND l.id = dead.id
)
UPDATE idem.inbox m
SET state = 'handled', since = statement_timestamp(),
    expires_at = statement_timestamp() + @retention::interval,
    attempts = NULL, begun = NULL, alone = NULL, hindered = NULL, retry_at = NULL, key = NULL
FROM due
WHERE m.consumer = due.consumer AND m.source = due.source AND m.id = due.id
RETURNING m.source, m.id, m.since;

-- name: KeepMessages :one
-- KeepMessages goes ahead of COMMIT. It divides by zero, so that the COMMIT is not reached, if this is not the transaction that
-- has claimed: a handler ended that, and began another one.
-- @prepared
SELECT (1 / (CASE
    WHEN current_setting('idem.claim', true) = @execution_id::text THEN 1 ELSE 0
    END)::int4) AS _;

-- name: CountFailure :one
-- CountFailure counts an attempt that has failed, or was hindered, and says when the next one is due. No row: the message is
-- handled or dead, or another one has its id.
INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts, hindered, retry_at, key)
VALUES (@consumer, @source, @id, @hash, 'failing',
        clock_timestamp(), clock_timestamp() + @retention::interval,
        @attempts::int4, @hindered::int4,
        clock_timestamp() + @pause::interval,
        @key::text)
ON CONFLICT (consumer, source, id) DO UPDATE
SET attempts = coalesce(m.attempts, 0) + EXCLUDED.attempts, begun = NULL, alone = NULL,
    hindered = coalesce(m.hindered, 0) + EXCLUDED.hindered,
    retry_at = EXCLUDED.retry_at, expires_at = EXCLUDED.expires_at, key = EXCLUDED.key
WHERE m.state = 'failing' AND m.hash = EXCLUDED.hash
RETURNING coalesce(m.attempts, 0)::int4 AS attempts;

-- name: BuryMessage :one
-- BuryMessage makes a message a dead letter. No row: the message is handled or dead already, or another one has its id.
WITH buried AS (
    INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts)
    VALUES (@consumer, @source, @id, @hash, 'dead',
            clock_timestamp(), clock_timestamp() + @retention::interval,
            @attempts)
    ON CONFLICT (consumer, source, id) DO UPDATE
    SET state = EXCLUDED.state, since = EXCLUDED.since, expires_at = EXCLUDED.expires_at, attempts = EXCLUDED.attempts,
        begun = NULL, alone = NULL, hindered = NULL, retry_at = NULL, key = NULL
    WHERE m.state = 'failing' AND m.hash = EXCLUDED.hash
    RETURNING m.consumer, m.source, m.id, m.since
)
INSERT INTO idem.dead_letters AS l (side, consumer, source, id, key, type, payload, headers, sealed_by, class, reason, attempts, created_at, died_at)
SELECT 'inbox', b.consumer, b.source, b.id, @key::text, @type::text, @payload::bytea,
       (sqlc.narg(headers)::text)::jsonb, sqlc.narg(sealed_by)::text, @class::text, @reason::text, @attempts::int4, b.since, b.since
FROM buried b
ON CONFLICT (side, consumer, source, id) DO UPDATE
SET key = EXCLUDED.key, type = EXCLUDED.type, payload = EXCLUDED.payload, headers = EXCLUDED.headers, sealed_by = EXCLUDED.sealed_by,
    class = EXCLUDED.class, reason = EXCLUDED.reason, attempts = EXCLUDED.attempts, died_at = EXCLUDED.died_at, redrive_at = NULL
RETURNING l.attempts;

-- name: ReleaseMessages :exec
-- ReleaseMessages forgets messages that were written down as handled at that moment, and were not: their handler has committed
-- that before they were. The moment travels as the microseconds since 1970.
DELETE FROM idem.inbox m
USING ROWS FROM (unnest((@sources::text)::text[]),
                 unnest((@ids::text)::text[])) AS u (source, id)
WHERE m.consumer = @consumer
  AND m.source = u.source AND m.id = u.id
  AND m.state = 'handled'
  AND m.since = (to_timestamp(0) + @claimed::interval);

-- name: EnterMessages :exec
-- EnterMessages writes down messages of which nothing is known, for AnnounceMessages. Their order is kept, for who waits for those
-- before it. It and ClaimMessages wait for what others insert, in one order, and then AnnounceMessages and ResumeMessages for what
-- others have locked, in one order: one statement that waited for both would deadlock with who has inserted and waits for a lock.
INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, begun, alone, retry_at, key)
SELECT @consumer, u.source, u.id,
       substring(@hashes::bytea, ((u.n - 1) * 32 + 1)::int4, 32),
       'failing', statement_timestamp() +
           (u.n::float8 * '1 microsecond'::interval),
       statement_timestamp() + @retention::interval, 0, 0, 0, statement_timestamp(), u.key
FROM ROWS FROM (unnest((@sources::text)::text[]),
                unnest((@ids::text)::text[]),
                unnest((@keys::text)::text[])) WITH ORDINALITY AS u (source, id, key, n)
ORDER BY u.source COLLATE "C", u.id COLLATE "C"
ON CONFLICT (consumer, source, id) DO NOTHING;

-- name: AnnounceMessages :many
-- AnnounceMessages says, before they begin, that attempts at messages do, together or, of one message, alone.
-- Those that are handled, dead or not due are not returned.
WITH due AS (
    SELECT m.consumer, m.source, m.id
    FROM ROWS FROM (unnest((@sources::text)::text[]),
                    unnest((@ids::text)::text[])) WITH ORDINALITY AS u (source, id, n)
    JOIN idem.inbox m ON m.consumer = @consumer
     AND m.source = u.source AND m.id = u.id
    WHERE m.state = 'failing' AND m.retry_at <= statement_timestamp()
      AND m.hash = substring(@hashes::bytea,
          ((u.n - 1) * 32 + 1)::int4, 32)
    ORDER BY m.source, m.id
    FOR UPDATE OF m
)
UPDATE idem.inbox m
SET begun = coalesce(m.begun, 0) + (NOT @alone::bool)::int4,
    alone = coalesce(m.alone, 0) + (@alone::bool)::int4,
    expires_at = statement_timestamp() + @retention::interval
FROM due
WHERE m.consumer = due.consumer AND m.source = due.source AND m.id = due.id
RETURNING m.source, m.id;

-- name: WithdrawMessages :exec
-- WithdrawMessages takes back what was announced: the attempts have ended, and no message is to blame.
UPDATE idem.inbox m
SET begun = m.begun - (NOT @alone::bool)::int4,
    alone = m.alone - (@alone::bool)::int4
FROM (
    SELECT i.consumer, i.source, i.id
    FROM ROWS FROM (unnest((@sources::text)::text[]),
                    unnest((@ids::text)::text[])) AS u (source, id)
    JOIN idem.inbox i ON i.consumer = @consumer
     AND i.source = u.source AND i.id = u.id
    WHERE i.state = 'failing'
      AND (CASE WHEN @alone THEN i.alone ELSE i.begun END) > 0
    ORDER BY i.source, i.id
    FOR UPDATE OF i
) announced
WHERE m.consumer = announced.consumer AND m.source = announced.source
  AND m.id = announced.id;

-- name: FailingMessages :many
-- FailingMessages tells which messages of these keys are to be tried again, by the index that has those alone.
SELECT f.source, f.key::text AS key, f.id, f.remaining::int8 AS remaining, f.since
FROM ROWS FROM (unnest((@sources::text)::text[]),
                unnest((@keys::text)::text[])) AS u (source, key)
CROSS JOIN LATERAL (
    SELECT i.source, i.key, i.id,
           coalesce(ceil(date_part('epoch', i.retry_at - clock_timestamp())
               * 1000000), 0) AS remaining,
           i.since
    FROM idem.inbox i
    WHERE i.consumer = @consumer AND i.source = u.source
      AND i.key = u.key AND i.state = 'failing'
    OFFSET 0
) f
ORDER BY f.since, f.id;

-- name: RedriveMessage :one
-- RedriveMessage lets a dead letter be tried again: from its own payload, or when it is delivered.
WITH marked AS (
    UPDATE idem.dead_letters l SET redrive_at = clock_timestamp()
    WHERE l.side = 'inbox' AND l.consumer = @consumer
      AND l.source = @source AND l.id = @id
    RETURNING l.consumer, l.source, l.id, l.key
), revived AS (
    UPDATE idem.inbox m
    SET state = 'failing', attempts = 0, begun = NULL, alone = NULL, hindered = NULL, retry_at = clock_timestamp(), since = clock_timestamp(),
        expires_at = clock_timestamp() + (m.expires_at - m.since), key = marked.key
    FROM marked
    WHERE m.consumer = marked.consumer AND m.source = marked.source
      AND m.id = marked.id AND m.state = 'dead'
)
SELECT (count(*) > 0)::bool AS known FROM marked;

-- name: MessageRedrives :many
-- MessageRedrives reads the dead letters of a consumer that are to be tried again, in the order in which a person has wanted it.
SELECT l.source, l.id, l.key, l.type, l.payload, coalesce(l.headers::text, '')::text AS headers,
       coalesce(l.sealed_by, '')::text AS sealed_by
FROM idem.dead_letters l
WHERE l.side = 'inbox' AND l.consumer = @consumer AND l.redrive_at IS NOT NULL
ORDER BY l.redrive_at, l.source, l.id
LIMIT @room;

-- name: ForgetRedrives :exec
-- ForgetRedrives removes dead letters that were tried again, and are handled.
DELETE FROM idem.dead_letters l
USING (
    SELECT o.consumer, o.source, o.id
    FROM ROWS FROM (unnest((@sources::text)::text[]),
                    unnest((@ids::text)::text[])) AS u (source, id)
    JOIN idem.dead_letters o ON o.side = 'inbox' AND o.consumer = @consumer
     AND o.source = u.source AND o.id = u.id
    WHERE o.redrive_at IS NOT NULL
    ORDER BY o.source, o.id
    FOR UPDATE OF o
) dead
WHERE l.side = 'inbox' AND l.consumer = dead.consumer
  AND l.source = dead.source AND l.id = dead.id;

-- name: InboxStats :many
-- InboxStats tells what consumers have yet to handle, and what is dead. It reads no message that is handled.
SELECT s.consumer::text AS consumer, sum(s.failing)::int8 AS failing,
       min(s.failing_since)::timestamptz AS failing_since,
       sum(s.dead)::int8 AS dead,
       min(s.died_at)::timestamptz AS died_at
FROM (
    SELECT m.consumer, count(*) AS failing, min(m.since) AS failing_since, 0 AS dead, NULL::timestamptz AS died_at
    FROM idem.inbox m
    WHERE m.state = 'failing'
    GROUP BY m.consumer
    UNION ALL
    SELECT l.consumer, 0, NULL, count(*), min(l.died_at)
    FROM idem.dead_letters l
    WHERE l.side = 'inbox'
    GROUP BY l.consumer
) s
GROUP BY s.consumer
ORDER BY s.consumer;
