-- name: BeginMessages :one
-- BeginMessages begins a transaction that handles messages. It stores the execution id in
-- idem.claim, as the claim of a key does. It sets lock_timeout to Patience for the next statements;
-- Calm restores the setting. It makes the COMMIT wait for the disk even where the session would
-- not, because a broker forgets an acknowledged message. The name of that setting is written in two
-- parts, as in HoldKey.
--
-- BeginMessages exports a snapshot, because a transaction that has exported a snapshot cannot be
-- prepared. A handler that prepared it for a later COMMIT would mark messages as handled that the
-- handler never received. Owned is false for a transaction of the caller, which may be prepared.
-- @prepared
SELECT coalesce(current_setting('idem.claim', true), '')::text AS previous,
       set_config('idem.claim', @execution_id, true) AS _,
       set_config('idem.lock_timeout', current_setting('lock_timeout'), true) AS _,
       set_config('lock_timeout', @patience, true) AS _,
       CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _,
       CASE WHEN @owned::bool AND current_setting('max_prepared_transactions', true) <> '0' THEN pg_export_snapshot() END AS _;

-- name: ClaimMessages :many
-- ClaimMessages inserts the messages that have no row yet as handled, and returns them. The primary
-- key alone guarantees that a message is handled once. The rows are inserted in a fixed order,
-- whatever the order of delivery, so that two of these statements cannot deadlock. The parameter
-- hashes has 32 bytes for each message.
-- @in Messages *Messages
-- @out MessageID
-- @row ClaimedMessage
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
-- LoadMessages reads the rows of messages that were not claimed. It is a separate statement because
-- the snapshot of the claim may be older than the commit of the call that inserted the rows. It
-- reads no row of a claimed message, so that unrelated transactions do not conflict under
-- SERIALIZABLE. Each row is found by the index; OFFSET keeps the planner from reading the whole
-- table.
-- @in Messages *Messages
-- @out MessageID
-- @row KnownMessage
SELECT m.source, m.id, m.same_hash::bool AS same_hash, m.state, m.attempts::int4 AS attempts,
       m.begun::bool AS begun, m.hindered::int4 AS hindered, m.remaining::int8 AS remaining, m.since
FROM ROWS FROM (unnest((@sources::text)::text[]),
                unnest((@ids::text)::text[])) WITH ORDINALITY AS u (source, id, n)
CROSS JOIN LATERAL (
    SELECT i.source, i.id, i.state, coalesce(i.attempts, 0) AS attempts, coalesce(i.begun, false) AS begun,
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
-- ResumeMessages marks failing messages whose next attempt is due as handled, and returns them. It
-- locks their rows in the order in which messages are claimed. It deletes the dead letters of
-- messages that were redriven.
-- @in Messages *Messages
-- @out MessageID
-- @row ClaimedMessage
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
    attempts = NULL, begun = NULL, hindered = NULL, retry_at = NULL, key = NULL
FROM due
WHERE m.consumer = due.consumer AND m.source = due.source AND m.id = due.id
RETURNING m.source, m.id, m.since;

-- name: KeepMessages :one
-- KeepMessages precedes the COMMIT. It divides by zero if this transaction is not the one that
-- claimed the messages, so that the server does not reach the COMMIT. This happens when a handler
-- ended the claiming transaction and began another one.
-- @prepared
SELECT (1 / (CASE
    WHEN current_setting('idem.claim', true) = @execution_id::text THEN 1 ELSE 0
    END)::int4) AS _;

-- name: CountFailure :one
-- CountFailure records an attempt that did not succeed, and sets when the next one is due. Added is
-- added to the number of attempts. It is 1, or 0 if AnnounceMessage has counted the attempt, or -1
-- if AnnounceMessage counted an attempt that should not count. No row means that the message is
-- handled or dead, or that another message has its id.
-- @in FailedMessage
INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts, hindered, retry_at, key)
VALUES (@consumer, @source, @id, @hash, 'failing',
        clock_timestamp(), clock_timestamp() + @retention::interval,
        greatest(@added::int4, 0), @hindered::int4,
        clock_timestamp() + @pause::interval,
        @key::text)
ON CONFLICT (consumer, source, id) DO UPDATE
SET attempts = greatest(coalesce(m.attempts, 0) + @added::int4, 0), begun = NULL,
    hindered = coalesce(m.hindered, 0) + EXCLUDED.hindered,
    retry_at = EXCLUDED.retry_at, expires_at = EXCLUDED.expires_at, key = EXCLUDED.key
WHERE m.state = 'failing' AND m.hash = EXCLUDED.hash
RETURNING coalesce(m.attempts, 0)::int4 AS attempts;

-- name: BuryMessage :one
-- BuryMessage dead-letters a message. No row means that the message is already handled or dead, or
-- that another message has its id.
-- @in FailedMessage, Contents Contents
WITH buried AS (
    INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts)
    VALUES (@consumer, @source, @id, @hash, 'dead',
            clock_timestamp(), clock_timestamp() + @retention::interval,
            @attempts)
    ON CONFLICT (consumer, source, id) DO UPDATE
    SET state = EXCLUDED.state, since = EXCLUDED.since, expires_at = EXCLUDED.expires_at, attempts = EXCLUDED.attempts,
        begun = NULL, hindered = NULL, retry_at = NULL, key = NULL
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
RETURNING l.attempts AS _;

-- name: ReleaseMessages :exec
-- ReleaseMessages deletes the rows of messages that were claimed at ClaimedAt and were not handled.
-- Their handler committed the claim before it had handled them. ClaimedAt is sent as the
-- microseconds since 1970.
-- @in Messages *Messages
DELETE FROM idem.inbox m
USING ROWS FROM (unnest((@sources::text)::text[]),
                 unnest((@ids::text)::text[])) AS u (source, id)
WHERE m.consumer = @consumer
  AND m.source = u.source AND m.id = u.id
  AND m.state = 'handled'
  AND m.since = (to_timestamp(0) + @claimed_at::interval);

-- name: AnnounceMessage :one
-- AnnounceMessage counts an attempt at a message before the attempt begins. The count stands unless
-- CountFailure or WithdrawMessage corrects it, or the message is handled. No row means that the
-- message is handled, dead or not due, or that another message has its id. The statement waits for
-- one row and holds no other, so it cannot deadlock.
-- @in FailedMessage
INSERT INTO idem.inbox AS m (consumer, source, id, hash, state, since, expires_at, attempts, begun, retry_at, key)
VALUES (@consumer, @source, @id, @hash, 'failing',
        statement_timestamp(), statement_timestamp() + @retention::interval,
        1, true, statement_timestamp(), @key::text)
ON CONFLICT (consumer, source, id) DO UPDATE
SET attempts = coalesce(m.attempts, 0) + 1, begun = true, expires_at = EXCLUDED.expires_at
WHERE m.state = 'failing' AND m.hash = EXCLUDED.hash AND m.retry_at <= clock_timestamp()
RETURNING m.attempts::int4 AS attempts;

-- name: WithdrawMessage :exec
-- WithdrawMessage undoes the count of AnnounceMessage: the attempt has ended, and the message did
-- not fail.
UPDATE idem.inbox m
SET attempts = greatest(m.attempts - 1, 0), begun = NULL
WHERE m.consumer = @consumer AND m.source = @source AND m.id = @id
  AND m.state = 'failing' AND m.begun;

-- name: FailingMessages :many
-- FailingMessages lists the failing messages of these keys, with the time until the next attempt at
-- each. It uses the partial index that holds only failing messages.
-- @out MessageID
-- @row FailingMessage
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
-- RedriveMessage makes a dead letter a failing message again, without attempts, behind the other
-- failing messages of its key. The payload stays in the dead letter until the message is handled.
-- The rows are locked in the order of ResumeMessages.
WITH revived AS (
    UPDATE idem.inbox m
    SET state = 'failing', attempts = 0, begun = NULL, hindered = NULL, retry_at = clock_timestamp(), since = clock_timestamp(),
        expires_at = clock_timestamp() + (m.expires_at - m.since), key = l.key
    FROM idem.dead_letters l
    WHERE m.consumer = @consumer AND m.source = @source AND m.id = @id AND m.state = 'dead'
      AND l.side = 'inbox' AND l.consumer = m.consumer AND l.source = m.source AND l.id = m.id
    RETURNING m.id
), marked AS (
    UPDATE idem.dead_letters l SET redrive_at = clock_timestamp()
    WHERE l.side = 'inbox' AND l.consumer = @consumer
      AND l.source = @source AND l.id = @id
      AND (SELECT count(*) FROM revived) >= 0
    RETURNING l.id
)
SELECT (count(*) > 0)::bool AS known FROM marked;

-- name: DropMessage :one
-- DropMessage deletes a dead letter. A message that was redriven becomes dead again, so that no
-- message waits behind it. The rows are locked in the order of ResumeMessages.
WITH buried AS (
    UPDATE idem.inbox m
    SET state = 'dead', since = clock_timestamp(), begun = NULL, hindered = NULL, retry_at = NULL, key = NULL
    FROM idem.dead_letters l
    WHERE m.consumer = @consumer AND m.source = @source AND m.id = @id AND m.state = 'failing'
      AND l.side = 'inbox' AND l.consumer = m.consumer AND l.source = m.source AND l.id = m.id AND l.redrive_at IS NOT NULL
    RETURNING m.id
), dropped AS (
    DELETE FROM idem.dead_letters l
    WHERE l.side = 'inbox' AND l.consumer = @consumer
      AND l.source = @source AND l.id = @id
      AND (SELECT count(*) FROM buried) >= 0
    RETURNING l.id
)
SELECT (count(*) > 0)::bool AS known FROM dropped;

-- name: MessageRedrives :many
-- MessageRedrives reads the redriven messages of a consumer that are due, in the order in which
-- they were redriven. It reads up to Room messages, and stops after the message that reaches
-- MaxBytes of payload. The first message is always read, whatever its size. A dead letter without a
-- row in idem.inbox is always due.
-- @out MessageID, Contents Contents
-- @row MessageRedrive
SELECT r.source, r.id, r.key, r.type, l.payload, coalesce(l.headers::text, '')::text AS headers,
       coalesce(l.sealed_by, '')::text AS sealed_by
FROM (
    SELECT d.consumer, d.source, d.id, d.key, d.type, d.redrive_at, octet_length(d.payload) AS size,
           sum(octet_length(d.payload)) OVER (ORDER BY d.redrive_at, d.source, d.id) AS total
    FROM idem.dead_letters d
    WHERE d.side = 'inbox' AND d.consumer = @consumer AND d.redrive_at IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM idem.inbox m
          WHERE m.consumer = d.consumer AND m.source = d.source AND m.id = d.id
            AND m.state = 'failing' AND m.retry_at > clock_timestamp())
    ORDER BY d.redrive_at, d.source, d.id
    LIMIT @room
) r
JOIN idem.dead_letters l ON l.side = 'inbox' AND l.consumer = r.consumer AND l.source = r.source AND l.id = r.id
WHERE coalesce(r.total - r.size, 0) < @max_bytes::int8
ORDER BY r.redrive_at, r.source, r.id;

-- name: ForgetRedrives :exec
-- ForgetRedrives deletes the dead letters of redriven messages that have been handled.
-- @in Messages *Messages
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
-- InboxStats counts the failing messages and the dead letters of each consumer. It reads no handled
-- message.
-- @row ConsumerStats
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
