-- name: Hold :one
-- Hold makes the record that this transaction has claimed, or holds, one of an operation: the key is in progress without a
-- transaction, for as long as room says. No room at all frees the key. Like Complete it is an upsert, and divides by zero
-- where there is nothing to hold.
INSERT INTO idem.records AS r (scope, key, hash, operation_id, created_at, expires_at, state)
VALUES (@scope::pg_catalog.text, @key::pg_catalog.text, ''::pg_catalog.bytea, (@operation_id::pg_catalog.text)::pg_catalog.uuid,
        pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), 'running')
ON CONFLICT (scope, key) DO UPDATE
SET state = EXCLUDED.state, expires_at = EXCLUDED.expires_at OPERATOR(pg_catalog.+) @room::pg_catalog.interval
RETURNING (1 OPERATOR(pg_catalog./) (CASE
            WHEN pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) @operation_id::pg_catalog.text
             AND r.operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
             AND pg_catalog.length(r.hash) OPERATOR(pg_catalog.>) 0 THEN 1 ELSE 0 END)::pg_catalog.int4)::pg_catalog.int4 AS one;

-- name: BeginOperation :exec
-- BeginOperation writes down an operation with its first commit. Without an owner it is for whoever comes, after pause. When
-- the key was claimed travels as the time since 1970, because no setting of a session reads that in another way; NULL is now. The
-- parent is the operation that awaits it, NULL if it is no child.
INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, parent, epoch, owner, state, undoing, kind, step, seq,
                             since, wake_at, tries, attempts)
VALUES ((@operation_id::pg_catalog.text)::pg_catalog.uuid, @scope::pg_catalog.text, @key::pg_catalog.text, @hash::pg_catalog.bytea,
        @name::pg_catalog.text, @ttl::pg_catalog.int8, coalesce('1970-01-01 00:00:00+00'::pg_catalog.timestamptz OPERATOR(pg_catalog.+) sqlc.narg(claimed)::pg_catalog.interval, pg_catalog.clock_timestamp()),
        @input::pg_catalog.bytea, (sqlc.narg(parent)::pg_catalog.text)::pg_catalog.uuid, 1, sqlc.narg(owner)::pg_catalog.int4,
        'running', false, @kind::pg_catalog.text, @step::pg_catalog.text, @seq::pg_catalog.int4, pg_catalog.clock_timestamp(),
        pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @pause::pg_catalog.interval, 0, 0);

-- name: AdvanceOperation :one
-- AdvanceOperation is in every later commit of an operation, and fences it: it divides by zero, so that a COMMIT behind it is
-- not reached, if another process has taken the operation up, if it does not run, if it was cancelled and this run does not know
-- (NULL: that does not matter), or if this is not the transaction that was begun for it. Like Complete it is an upsert, because that needs no plan that could be a bad one.
INSERT INTO idem.operations AS o (id, scope, key, hash, name, ttl, created_at, epoch, owner, state, undoing, kind, step, seq,
                                  since, wake_at, tries, attempts, ended_at)
VALUES ((@operation_id::pg_catalog.text)::pg_catalog.uuid, '', '', ''::pg_catalog.bytea, '', 0, pg_catalog.clock_timestamp(), 0,
        sqlc.narg(owner)::pg_catalog.int4, @state::pg_catalog.text, @undoing::pg_catalog.bool, @kind::pg_catalog.text, @step::pg_catalog.text,
        @seq::pg_catalog.int4, pg_catalog.clock_timestamp(),
        pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @pause::pg_catalog.interval, @tries::pg_catalog.int4, 0,
        CASE WHEN @state::pg_catalog.text OPERATOR(pg_catalog.<>) 'running' THEN pg_catalog.clock_timestamp() END)
ON CONFLICT (id) DO UPDATE
SET epoch = CASE WHEN o.state OPERATOR(pg_catalog.=) 'running' THEN o.epoch ELSE 0 END,
    owner = EXCLUDED.owner, state = EXCLUDED.state, undoing = EXCLUDED.undoing, kind = EXCLUDED.kind, step = EXCLUDED.step,
    seq = EXCLUDED.seq,
    since = CASE WHEN o.seq OPERATOR(pg_catalog.=) EXCLUDED.seq THEN o.since ELSE EXCLUDED.since END,
    wake_at = EXCLUDED.wake_at, tries = EXCLUDED.tries, attempts = EXCLUDED.attempts, ended_at = EXCLUDED.ended_at
RETURNING (1 OPERATOR(pg_catalog./) (CASE
            WHEN o.epoch OPERATOR(pg_catalog.=) @epoch::pg_catalog.int4
             AND o.cancelled OPERATOR(pg_catalog.=) coalesce(sqlc.narg(cancelled)::pg_catalog.bool, o.cancelled)
             AND pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) @operation_id::pg_catalog.text
            THEN 1 ELSE 0 END)::pg_catalog.int4)::pg_catalog.int4 AS one;

-- name: RecordStep :exec
-- RecordStep remembers a step. It travels behind AdvanceOperation or BeginOperation, which say whether it may. Where the new row has
-- no due_at, that of the old one stays.
INSERT INTO idem.steps AS s (operation_id, seq, kind, name, due_at, recorded_at, outcome, value)
VALUES ((@operation_id::pg_catalog.text)::pg_catalog.uuid, @seq::pg_catalog.int4, @kind::pg_catalog.text, @name::pg_catalog.text,
        pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) sqlc.narg(pause)::pg_catalog.interval, pg_catalog.clock_timestamp(),
        @outcome::pg_catalog.text, @value::pg_catalog.bytea)
ON CONFLICT (operation_id, seq) DO UPDATE
SET due_at = COALESCE(EXCLUDED.due_at, s.due_at), recorded_at = EXCLUDED.recorded_at, outcome = EXCLUDED.outcome, value = EXCLUDED.value;

-- name: LoadSteps :many
-- LoadSteps reads all that an operation remembers: the steps that have a row, and the call that was begun alone and has none. Calls that
-- were begun together have rows.
SELECT s.seq, s.kind, s.name, s.outcome, s.value,
       pg_catalog.timestamptz_send(s.due_at)::pg_catalog.bytea AS due_at,
       pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS loaded_at
FROM (
    SELECT r.seq, r.kind, r.name, r.outcome, r.value, r.due_at FROM idem.steps r
    WHERE r.operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
    UNION ALL
    SELECT o.seq, o.kind, o.step, 'begun', NULL, NULL FROM idem.operations o
    WHERE o.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid AND o.kind OPERATOR(pg_catalog.=) 'call'
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id OPERATOR(pg_catalog.=) o.id AND e.seq OPERATOR(pg_catalog.=) o.seq)) s
ORDER BY s.seq;

-- name: TakeOperation :one
-- TakeOperation takes one operation up, in an epoch of its own, if it is due and no process that is there works on it: if its owner
-- has neither a lock nor a lease, or is this process, which asks only for what it does not work on. The process that was its owner
-- in the epoch that it names may take it up again at any time. It waits for no lock: a row that is locked is one that is being
-- committed. An owner that is gone has died without releasing the operation, which is counted in deaths, from 0 again if the
-- operation has got on since. From 3 on it is a suspect: a process takes it up only if it says that it has no other suspect (alone),
-- and it is not due at once if that process dies, too.
UPDATE idem.operations AS o
SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = @owner::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,
    taken_at = pg_catalog.clock_timestamp(), deaths = taken.deaths,
    wake_at = CASE WHEN taken.deaths OPERATOR(pg_catalog.<) 3 THEN o.wake_at
                   ELSE pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) ('1 second'::pg_catalog.interval OPERATOR(pg_catalog.*)
                        pg_catalog.power(2::pg_catalog.float8, LEAST(taken.deaths OPERATOR(pg_catalog.-) 3, 6)::pg_catalog.float8)) END
FROM (
    SELECT c.id, suspicion.deaths FROM idem.operations c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.attempts OPERATOR(pg_catalog.=) 0 THEN 0 ELSE COALESCE(c.deaths, 0) END OPERATOR(pg_catalog.+)
                                CASE WHEN c.owner IS NULL OR c.owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4
                                OR c.epoch OPERATOR(pg_catalog.=) @epoch::pg_catalog.int4 THEN 0 ELSE 1 END AS deaths) suspicion
    WHERE (@alone::pg_catalog.bool OR suspicion.deaths OPERATOR(pg_catalog.<) 3)
      AND c.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
      AND c.state OPERATOR(pg_catalog.=) 'running'
      AND (c.epoch OPERATOR(pg_catalog.=) @epoch::pg_catalog.int4 OR (
            (c.wake_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
             OR EXISTS (SELECT 1 FROM idem.signals s
                        JOIN idem.steps a ON a.operation_id OPERATOR(pg_catalog.=) s.operation_id
                        WHERE s.operation_id OPERATOR(pg_catalog.=) c.id AND NOT s.taken
                          AND a.seq OPERATOR(pg_catalog.=) c.seq AND a.outcome OPERATOR(pg_catalog.=) 'waiting'
                          AND (a.kind OPERATOR(pg_catalog.=) 'await' AND s.name OPERATOR(pg_catalog.=) c.step
                               OR a.kind OPERATOR(pg_catalog.=) 'child' AND pg_catalog.starts_with(s.name, '#'))))
            AND (c.owner IS NULL OR c.owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4
                 OR c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(
                        SELECT l.objid::pg_catalog.int8::pg_catalog.int4 FROM pg_catalog.pg_locks l
                        WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 2
                          AND l.classid OPERATOR(pg_catalog.=) (1768187247::pg_catalog.int8)::pg_catalog.oid
                          AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
                        UNION ALL
                        SELECT e.instance FROM idem.leases e
                        WHERE e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())))))
    FOR NO KEY UPDATE OF c SKIP LOCKED) taken
WHERE o.id OPERATOR(pg_catalog.=) taken.id
RETURNING (o.id::pg_catalog.text)::pg_catalog.text AS operation_id, o.scope, o.key, o.hash, o.name, o.ttl, o.input, o.epoch, o.undoing, o.cancelled, o.accepted, o.step, o.seq, o.tries, o.attempts, taken.deaths::pg_catalog.int4 AS deaths,
          coalesce(o.parent::pg_catalog.text, '')::pg_catalog.text AS parent,
          pg_catalog.timestamptz_send(o.created_at)::pg_catalog.bytea AS created_at,
          pg_catalog.timestamptz_send(o.since)::pg_catalog.bytea AS since,
          pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS loaded_at;

-- name: TakeOperations :many
-- TakeOperations takes up what is due of these names, and what was sent the signal that it awaits, or the outcome of the child that it
-- awaits, which is the only signal whose name may begin with a #: the longest due first. running
-- lists the operations that this process works on: one that has its number and is not among them was lost by it, and may be taken
-- up, unless it was taken up or begun so lately that it may have come on the list after this was sent. Of suspects, as TakeOperation
-- knows them, it takes up one at most, and none unless the process says that it has none (alone). The clock is read once, so that an
-- index is asked for what is due, and what sleeps is not looked at. The lists are queries, which are made an array or a hash table
-- once: one that is cast in the condition would be parsed again for every row.
WITH present AS (
    SELECT l.objid::pg_catalog.int8::pg_catalog.int4 AS instance FROM pg_catalog.pg_locks l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 2
      AND l.classid OPERATOR(pg_catalog.=) (1768187247::pg_catalog.int8)::pg_catalog.oid
      AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    UNION ALL
    SELECT e.instance FROM idem.leases e
    WHERE e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
), due AS (
    SELECT c.id, suspicion.deaths, c.wake_at AS ready FROM idem.operations c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.attempts OPERATOR(pg_catalog.=) 0 THEN 0 ELSE COALESCE(c.deaths, 0) END OPERATOR(pg_catalog.+)
                                CASE WHEN c.owner IS NULL OR c.owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4 THEN 0 ELSE 1 END AS deaths) suspicion
    WHERE c.state OPERATOR(pg_catalog.=) 'running'
      AND c.wake_at OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp())
      AND c.name OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest((@names::pg_catalog.text)::pg_catalog.text[])))
      AND NOT c.id OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest((@running::pg_catalog.text)::pg_catalog.uuid[]))
      AND (c.owner IS NULL
           OR c.owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4
              AND COALESCE(c.taken_at, c.since) OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval)
           OR c.owner OPERATOR(pg_catalog.<>) @owner::pg_catalog.int4
              AND c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))
      AND (@alone::pg_catalog.bool OR suspicion.deaths OPERATOR(pg_catalog.<) 3)
    ORDER BY c.wake_at
    LIMIT @room::pg_catalog.int4
    FOR NO KEY UPDATE OF c SKIP LOCKED
), signalled AS (
    SELECT c.id, suspicion.deaths, awaited.sent_at AS ready FROM idem.operations c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.attempts OPERATOR(pg_catalog.=) 0 THEN 0 ELSE COALESCE(c.deaths, 0) END OPERATOR(pg_catalog.+)
                                CASE WHEN c.owner IS NULL OR c.owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4 THEN 0 ELSE 1 END AS deaths) suspicion
    CROSS JOIN LATERAL (
        SELECT s.sent_at FROM idem.signals s
        JOIN idem.steps a ON a.operation_id OPERATOR(pg_catalog.=) s.operation_id
        WHERE s.operation_id OPERATOR(pg_catalog.=) c.id AND NOT s.taken
          AND a.seq OPERATOR(pg_catalog.=) c.seq AND a.outcome OPERATOR(pg_catalog.=) 'waiting'
          AND (a.kind OPERATOR(pg_catalog.=) 'await' AND s.name OPERATOR(pg_catalog.=) c.step
               OR a.kind OPERATOR(pg_catalog.=) 'child' AND pg_catalog.starts_with(s.name, '#'))
        LIMIT 1) awaited
    WHERE c.id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT w.operation_id FROM idem.signals w WHERE NOT w.taken))
      AND c.state OPERATOR(pg_catalog.=) 'running'
      AND c.wake_at OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp())
      AND c.name OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest((@names::pg_catalog.text)::pg_catalog.text[])))
      AND NOT c.id OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest((@running::pg_catalog.text)::pg_catalog.uuid[]))
      AND (c.owner IS NULL
           OR c.owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4
              AND COALESCE(c.taken_at, c.since) OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval)
           OR c.owner OPERATOR(pg_catalog.<>) @owner::pg_catalog.int4
              AND c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))
      AND (@alone::pg_catalog.bool OR suspicion.deaths OPERATOR(pg_catalog.<) 3)
    ORDER BY awaited.sent_at
    LIMIT @room::pg_catalog.int4
    FOR NO KEY UPDATE OF c SKIP LOCKED
), found AS (
    SELECT due.id, due.deaths, due.ready FROM due UNION ALL SELECT signalled.id, signalled.deaths, signalled.ready FROM signalled
), taken AS (
    SELECT found.id, found.deaths FROM found
    WHERE found.deaths OPERATOR(pg_catalog.<) 3
       OR found.id OPERATOR(pg_catalog.=) (SELECT first.id FROM found first WHERE first.deaths OPERATOR(pg_catalog.>=) 3 ORDER BY first.ready LIMIT 1)
    ORDER BY found.ready
    LIMIT @room::pg_catalog.int4
)
UPDATE idem.operations AS o
SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = @owner::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,
    taken_at = pg_catalog.clock_timestamp(), deaths = taken.deaths,
    wake_at = CASE WHEN taken.deaths OPERATOR(pg_catalog.<) 3 THEN o.wake_at
                   ELSE pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) ('1 second'::pg_catalog.interval OPERATOR(pg_catalog.*)
                        pg_catalog.power(2::pg_catalog.float8, LEAST(taken.deaths OPERATOR(pg_catalog.-) 3, 6)::pg_catalog.float8)) END
FROM taken
WHERE o.id OPERATOR(pg_catalog.=) taken.id
RETURNING (o.id::pg_catalog.text)::pg_catalog.text AS operation_id, o.scope, o.key, o.hash, o.name, o.ttl, o.input, o.epoch, o.undoing, o.cancelled, o.accepted, o.step, o.seq, o.tries, o.attempts, taken.deaths::pg_catalog.int4 AS deaths,
          coalesce(o.parent::pg_catalog.text, '')::pg_catalog.text AS parent,
          pg_catalog.timestamptz_send(o.created_at)::pg_catalog.bytea AS created_at,
          pg_catalog.timestamptz_send(o.since)::pg_catalog.bytea AS since,
          pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS loaded_at;

-- name: DueOperations :many
-- DueOperations tells what TakeOperations would take up, but for what is listed as id/epoch.
WITH present AS (
    SELECT l.objid::pg_catalog.int8::pg_catalog.int4 AS instance FROM pg_catalog.pg_locks l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 2
      AND l.classid OPERATOR(pg_catalog.=) (1768187247::pg_catalog.int8)::pg_catalog.oid
      AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    UNION ALL
    SELECT e.instance FROM idem.leases e
    WHERE e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
), due AS (
    SELECT c.id, c.name, c.epoch, c.wake_at AS ready FROM idem.operations c
    WHERE c.state OPERATOR(pg_catalog.=) 'running'
      AND c.wake_at OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp())
      AND c.name OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest((@names::pg_catalog.text)::pg_catalog.text[])))
      AND NOT (c.id::pg_catalog.text OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) c.epoch::pg_catalog.text) OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest((@but::pg_catalog.text)::pg_catalog.text[]))
      AND (c.owner IS NULL OR c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))
    ORDER BY c.wake_at
    LIMIT @room::pg_catalog.int4
), signalled AS (
    SELECT c.id, c.name, c.epoch, awaited.sent_at AS ready FROM idem.operations c
    CROSS JOIN LATERAL (
        SELECT s.sent_at FROM idem.signals s
        JOIN idem.steps a ON a.operation_id OPERATOR(pg_catalog.=) s.operation_id
        WHERE s.operation_id OPERATOR(pg_catalog.=) c.id AND NOT s.taken
          AND a.seq OPERATOR(pg_catalog.=) c.seq AND a.outcome OPERATOR(pg_catalog.=) 'waiting'
          AND (a.kind OPERATOR(pg_catalog.=) 'await' AND s.name OPERATOR(pg_catalog.=) c.step
               OR a.kind OPERATOR(pg_catalog.=) 'child' AND pg_catalog.starts_with(s.name, '#'))
        LIMIT 1) awaited
    WHERE c.id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT w.operation_id FROM idem.signals w WHERE NOT w.taken))
      AND c.state OPERATOR(pg_catalog.=) 'running'
      AND c.wake_at OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp())
      AND c.name OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest((@names::pg_catalog.text)::pg_catalog.text[])))
      AND NOT (c.id::pg_catalog.text OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) c.epoch::pg_catalog.text) OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest((@but::pg_catalog.text)::pg_catalog.text[]))
      AND (c.owner IS NULL OR c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))
    ORDER BY awaited.sent_at
    LIMIT @room::pg_catalog.int4
)
SELECT found.id::pg_catalog.text AS operation_id, found.name, found.epoch
FROM (SELECT due.id, due.name, due.epoch, due.ready FROM due
      UNION ALL SELECT signalled.id, signalled.name, signalled.epoch, signalled.ready FROM signalled) found
ORDER BY found.ready
LIMIT @room::pg_catalog.int4;

-- name: ShowOperation :one
-- ShowOperation tells how far an operation is.
SELECT o.scope, o.hash, o.name, o.state, o.epoch, o.undoing, o.cancelled, o.kind, o.step, o.attempts, coalesce(o.reason, '')::pg_catalog.text AS reason,
       coalesce(o.parent::pg_catalog.text, '')::pg_catalog.text AS parent,
       pg_catalog.timestamptz_send(o.since)::pg_catalog.bytea AS since,
       pg_catalog.timestamptz_send(o.wake_at)::pg_catalog.bytea AS wake_at,
       pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS loaded_at
FROM idem.operations o
WHERE o.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid;

-- name: LoadStepsOf :many
-- LoadStepsOf reads all that these operations remember.
SELECT (s.operation_id::pg_catalog.text)::pg_catalog.text AS operation_id, s.seq, s.kind, s.name, s.outcome, s.value,
       pg_catalog.timestamptz_send(s.due_at)::pg_catalog.bytea AS due_at,
       pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS loaded_at
FROM (
    SELECT r.operation_id, r.seq, r.kind, r.name, r.outcome, r.value, r.due_at FROM idem.steps r
    WHERE r.operation_id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest((@operation_ids::pg_catalog.text)::pg_catalog.uuid[])))
    UNION ALL
    SELECT o.id, o.seq, o.kind, o.step, 'begun', NULL, NULL FROM idem.operations o
    WHERE o.id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest((@operation_ids::pg_catalog.text)::pg_catalog.uuid[])))
      AND o.kind OPERATOR(pg_catalog.=) 'call'
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id OPERATOR(pg_catalog.=) o.id AND e.seq OPERATOR(pg_catalog.=) o.seq)) s
ORDER BY s.operation_id, s.seq;

-- name: ListSteps :many
-- ListSteps tells what an operation remembers, as LoadSteps does, without the values.
SELECT s.kind, s.name, s.outcome,
       pg_catalog.timestamptz_send(s.due_at)::pg_catalog.bytea AS due_at,
       pg_catalog.timestamptz_send(s.recorded_at)::pg_catalog.bytea AS recorded_at
FROM (
    SELECT r.seq, r.kind, r.name, r.outcome, r.due_at, r.recorded_at FROM idem.steps r
    WHERE r.operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
    UNION ALL
    SELECT o.seq, o.kind, o.step, 'begun', NULL, o.since FROM idem.operations o
    WHERE o.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid AND o.kind OPERATOR(pg_catalog.=) 'call'
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id OPERATOR(pg_catalog.=) o.id AND e.seq OPERATOR(pg_catalog.=) o.seq)) s
ORDER BY s.seq;

-- name: ReleaseOperation :exec
-- ReleaseOperation lets go of an operation: the next caller or worker goes on, after pause, and knows how often its call was tried.
UPDATE idem.operations
SET owner = NULL, tries = @tries::pg_catalog.int4, wake_at = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @pause::pg_catalog.interval
WHERE id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
  AND epoch OPERATOR(pg_catalog.=) @epoch::pg_catalog.int4 AND state OPERATOR(pg_catalog.=) 'running';

-- name: ParkOperation :execrows
-- ParkOperation stops an operation until a person has seen to it. Unbacked says that the step is a call which nothing takes back.
UPDATE idem.operations
SET state = 'parked', owner = NULL, reason = @reason::pg_catalog.text, step = @step::pg_catalog.text,
    kind = CASE WHEN @unbacked::pg_catalog.bool THEN 'unbacked' ELSE kind END
WHERE id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
  AND epoch OPERATOR(pg_catalog.=) @epoch::pg_catalog.int4 AND state OPERATOR(pg_catalog.=) 'running';

-- name: ReviveOperation :one
-- ReviveOperation lets an operation go on that is parked: forgetting which call was begun, if that has not happened, or towards
-- its end, if it is cancelled. Cancelled again where it is parked because nothing takes a call back, it ends without that. Of an
-- operation that runs only the cancellation is noted: its owner finds out at its next commit, and anybody else at once. With an
-- epoch it is let go on only if no process has taken it up since. With fresh it is let go on only if it was not cancelled before.
-- Unknown asks for a call or an undo that was begun and has no end: the one of this row, or calls that were begun together, which
-- BegunCalls lists.
UPDATE idem.operations AS o
SET state = 'running', reason = NULL, cancelled = o.cancelled OR @cancel::pg_catalog.bool,
    accepted = o.accepted OR o.cancelled AND @cancel::pg_catalog.bool AND o.state OPERATOR(pg_catalog.=) 'parked' AND o.kind OPERATOR(pg_catalog.=) 'unbacked',
    wake_at = CASE WHEN o.wake_at OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp() THEN o.wake_at ELSE pg_catalog.clock_timestamp() END,
    owner = CASE WHEN o.state OPERATOR(pg_catalog.=) 'running' THEN o.owner END,
    epoch = CASE WHEN o.state OPERATOR(pg_catalog.=) 'running' THEN o.epoch ELSE o.epoch OPERATOR(pg_catalog.+) 1 END,
    attempts = CASE WHEN o.state OPERATOR(pg_catalog.=) 'running' THEN o.attempts ELSE 0 END,
    tries = CASE WHEN o.state OPERATOR(pg_catalog.=) 'running' THEN o.tries ELSE 0 END,
    kind = CASE WHEN @forget::pg_catalog.bool THEN '' ELSE o.kind END,
    seq = CASE WHEN @forget::pg_catalog.bool THEN 0 ELSE o.seq END
WHERE o.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
  AND (o.state OPERATOR(pg_catalog.=) 'parked' OR o.state OPERATOR(pg_catalog.=) 'running' AND @cancel::pg_catalog.bool)
  AND (NOT @unknown::pg_catalog.bool OR o.kind OPERATOR(pg_catalog.=) ANY (ARRAY['call', 'undo']) AND NOT EXISTS (
        SELECT 1 FROM idem.steps s
        WHERE s.operation_id OPERATOR(pg_catalog.=) o.id AND s.seq OPERATOR(pg_catalog.=) o.seq AND s.outcome OPERATOR(pg_catalog.<>) 'registered')
       OR EXISTS (
        SELECT 1 FROM idem.steps b
        WHERE b.operation_id OPERATOR(pg_catalog.=) o.id AND b.outcome OPERATOR(pg_catalog.=) 'begun'))
  AND (@epoch::pg_catalog.int4 OPERATOR(pg_catalog.=) 0 OR o.epoch OPERATOR(pg_catalog.=) @epoch::pg_catalog.int4)
  AND NOT (@fresh::pg_catalog.bool AND o.cancelled)
RETURNING o.seq, o.kind, o.step, o.key;

-- name: BegunCalls :many
-- BegunCalls tells which of the calls that were begun together have no end on record.
SELECT s.seq, s.name FROM idem.steps s
WHERE s.operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid AND s.outcome OPERATOR(pg_catalog.=) 'begun'
ORDER BY s.seq;

-- name: Disown :exec
-- Disown releases the operations that have the number of this process without its working on them, unless they were taken up or
-- begun so lately that they may have come on its list after this was sent.
UPDATE idem.operations
SET owner = NULL
WHERE state OPERATOR(pg_catalog.=) 'running' AND owner OPERATOR(pg_catalog.=) @owner::pg_catalog.int4
  AND NOT id OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest((@running::pg_catalog.text)::pg_catalog.uuid[]))
  AND COALESCE(taken_at, since) OPERATOR(pg_catalog.<) (SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval);

-- name: ReleaseOperations :exec
-- ReleaseOperations releases operations that this process has taken up in these epochs, and has not begun to work on.
UPDATE idem.operations AS o
SET owner = NULL
FROM (SELECT pg_catalog.unnest((@operation_ids::pg_catalog.text)::pg_catalog.uuid[]) AS id,
             pg_catalog.unnest((@epochs::pg_catalog.text)::pg_catalog.int4[]) AS epoch) taken
WHERE o.id OPERATOR(pg_catalog.=) taken.id AND o.epoch OPERATOR(pg_catalog.=) taken.epoch AND o.state OPERATOR(pg_catalog.=) 'running';

-- name: SendSignal :one
-- SendSignal leaves a value for an operation that has not ended, unless there is one of that name. It keeps the operation from
-- being purged, and hinders nothing else of it, at whatever point of its course it is: whoever looks for operations that are due
-- finds the signal.
WITH target AS (
    SELECT o.id, o.ended_at FROM idem.operations o
    WHERE o.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
    FOR KEY SHARE
), sent AS (
    INSERT INTO idem.signals (operation_id, name, sent_at, value, taken)
    SELECT target.id, @name::pg_catalog.text, pg_catalog.clock_timestamp(), @value::pg_catalog.bytea, false FROM target
    WHERE target.ended_at IS NULL
    ON CONFLICT (operation_id, name) DO NOTHING
)
SELECT (pg_catalog.count(*) OPERATOR(pg_catalog.>) 0)::pg_catalog.bool AS known FROM target;

-- name: ReadSignal :one
-- ReadSignal reads what was sent, and when.
SELECT value, pg_catalog.timestamptz_send(sent_at)::pg_catalog.bytea AS sent_at FROM idem.signals
WHERE operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
  AND name OPERATOR(pg_catalog.=) @name::pg_catalog.text;

-- name: TakeSignal :exec
-- TakeSignal says that the operation has recorded a signal.
UPDATE idem.signals SET taken = true
WHERE operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
  AND name OPERATOR(pg_catalog.=) @name::pg_catalog.text;

-- name: DropSignals :exec
-- DropSignals says that the operation has ended without what was sent to it besides: nobody looks at that any more.
UPDATE idem.signals SET taken = true
WHERE operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid AND NOT taken;

-- name: NewInstance :one
-- NewInstance numbers a process. The number of the backend tells whether the session is the client's own: a pooler gives its
-- clients other numbers.
SELECT pg_catalog.nextval('idem.instances'::pg_catalog.regclass)::pg_catalog.int4 AS instance,
       pg_catalog.pg_backend_pid()::pg_catalog.int4 AS backend;

-- name: AppearInSession :one
-- AppearInSession shows that an instance is there, for as long as this session is. The session does nothing else. The server
-- is to notice soon if the client is gone without a word; over a Unix socket these settings mean nothing.
SELECT pg_catalog.pg_try_advisory_lock(1768187247, @instance::pg_catalog.int4)::pg_catalog.bool AS held,
       pg_catalog.set_config('tcp_keepalives_idle', '5', false)::pg_catalog.text AS idle,
       pg_catalog.set_config('tcp_keepalives_interval', '2', false)::pg_catalog.text AS pause,
       pg_catalog.set_config('tcp_keepalives_count', '3', false)::pg_catalog.text AS count,
       pg_catalog.set_config('tcp_user_timeout', '10s', false)::pg_catalog.text AS patience,
       pg_catalog.set_config('idle_session_timeout', '0', false)::pg_catalog.text AS unlimited,
       pg_catalog.set_config('application_name', 'idem presence', false)::pg_catalog.text AS name;

-- name: StandGuard :one
-- StandGuard makes this session one of two guards of the database, unless it is one already or both are there. Like all that is asked on
-- such a session it reads no table: there, it could have to wait.
SELECT CASE WHEN @slot::pg_catalog.int4 OPERATOR(pg_catalog.>) 0 THEN @slot::pg_catalog.int4
            WHEN pg_catalog.pg_try_advisory_lock(1768187248, 1) THEN 1
            WHEN pg_catalog.pg_try_advisory_lock(1768187248, 2) THEN 2
            ELSE 0 END::pg_catalog.int4 AS slot;

-- name: ListOwners :one
-- ListOwners tells who owns operations that are under way: other instances that are there, and whether there is one that has neither a
-- lock nor a lease. What sleeps is not looked at.
WITH owners AS MATERIALIZED (
    SELECT DISTINCT owned.owner FROM (
        SELECT o.owner FROM idem.operations o
        WHERE o.state OPERATOR(pg_catalog.=) 'running' AND o.wake_at OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp())
          AND o.owner OPERATOR(pg_catalog.<>) @instance::pg_catalog.int4
        LIMIT 10000) owned
), present AS MATERIALIZED (
    SELECT l.objid::pg_catalog.int8::pg_catalog.int4 AS instance FROM pg_catalog.pg_locks l
    WHERE EXISTS (SELECT 1 FROM owners)
      AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 2
      AND l.classid OPERATOR(pg_catalog.=) (1768187247::pg_catalog.int8)::pg_catalog.oid
      AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
)
SELECT pg_catalog.array_to_string(ARRAY(SELECT owners.owner FROM owners
                                        WHERE owners.owner OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT present.instance FROM present))), ',')::pg_catalog.text AS owners,
       EXISTS (SELECT 1 FROM owners
               WHERE owners.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present))
                 AND NOT EXISTS (SELECT 1 FROM idem.leases e WHERE e.instance OPERATOR(pg_catalog.=) owners.owner
                                    AND e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()))::pg_catalog.bool AS abandoned;

-- name: SeeGone :one
-- SeeGone tells which of these instances no longer hold the lock on their number. It takes it for as long as the statement, and
-- touches no other one.
SELECT pg_catalog.array_to_string(ARRAY(
    SELECT i.instance FROM (SELECT pg_catalog.unnest((@instances::pg_catalog.text)::pg_catalog.int4[]) AS instance) i
    WHERE pg_catalog.pg_try_advisory_xact_lock_shared(1768187247, i.instance)), ',')::pg_catalog.text AS gone;

-- name: StandDown :exec
-- StandDown leaves the place of a guard to others.
SELECT pg_catalog.pg_advisory_unlock(1768187248, @slot::pg_catalog.int4);

-- name: RenewLease :exec
-- RenewLease shows that an instance is there for as long as ttl.
INSERT INTO idem.leases (instance, expires_at)
VALUES (@instance::pg_catalog.int4, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @ttl::pg_catalog.interval)
ON CONFLICT (instance) DO UPDATE SET expires_at = EXCLUDED.expires_at;

-- name: EndLease :exec
-- EndLease says that an instance is gone, and forgets those that are.
DELETE FROM idem.leases
WHERE instance OPERATOR(pg_catalog.=) @instance::pg_catalog.int4
   OR expires_at OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '1 day'::pg_catalog.interval);

-- name: ListOperations :many
-- ListOperations tells of operations in the order of their ids, which is stable and has an index. Those that run or are parked have
-- indexes of their own, and there are few of them beside those that have ended: each branch is executed only if its state is asked for.
SELECT found.id::pg_catalog.text AS operation_id, found.scope, found.name, found.state, found.undoing, found.step,
       found.attempts, coalesce(found.reason, '')::pg_catalog.text AS reason,
       pg_catalog.timestamptz_send(found.created_at)::pg_catalog.bytea AS created_at,
       pg_catalog.timestamptz_send(found.since)::pg_catalog.bytea AS since,
       pg_catalog.timestamptz_send(found.ended_at)::pg_catalog.bytea AS ended_at
FROM (
    (SELECT o.id, o.scope, o.name, o.state, o.undoing, o.step, o.attempts, o.reason, o.created_at, o.since, o.ended_at FROM idem.operations o
     WHERE o.state OPERATOR(pg_catalog.=) 'parked' AND @state::pg_catalog.text OPERATOR(pg_catalog.=) 'parked'
       AND o.id OPERATOR(pg_catalog.>) (@after_operation::pg_catalog.text)::pg_catalog.uuid
       AND pg_catalog.starts_with(o.scope, @scope::pg_catalog.text)
       AND (@name::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.name OPERATOR(pg_catalog.=) @name::pg_catalog.text)
       AND (@step::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.step OPERATOR(pg_catalog.=) @step::pg_catalog.text)
       AND o.created_at OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) @age::pg_catalog.interval)
     ORDER BY o.id LIMIT @room::pg_catalog.int4)
    UNION ALL
    (SELECT o.id, o.scope, o.name, o.state, o.undoing, o.step, o.attempts, o.reason, o.created_at, o.since, o.ended_at FROM idem.operations o
     WHERE o.state OPERATOR(pg_catalog.=) 'running' AND @state::pg_catalog.text OPERATOR(pg_catalog.=) 'running'
       AND o.id OPERATOR(pg_catalog.>) (@after_operation::pg_catalog.text)::pg_catalog.uuid
       AND pg_catalog.starts_with(o.scope, @scope::pg_catalog.text)
       AND (@name::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.name OPERATOR(pg_catalog.=) @name::pg_catalog.text)
       AND (@step::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.step OPERATOR(pg_catalog.=) @step::pg_catalog.text)
       AND o.created_at OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) @age::pg_catalog.interval)
     ORDER BY o.id LIMIT @room::pg_catalog.int4)
    UNION ALL
    (SELECT o.id, o.scope, o.name, o.state, o.undoing, o.step, o.attempts, o.reason, o.created_at, o.since, o.ended_at FROM idem.operations o
     WHERE @state::pg_catalog.text OPERATOR(pg_catalog.<>) 'parked' AND @state::pg_catalog.text OPERATOR(pg_catalog.<>) 'running'
       AND (@state::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.state OPERATOR(pg_catalog.=) @state::pg_catalog.text)
       AND o.id OPERATOR(pg_catalog.>) (@after_operation::pg_catalog.text)::pg_catalog.uuid
       AND pg_catalog.starts_with(o.scope, @scope::pg_catalog.text)
       AND (@name::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.name OPERATOR(pg_catalog.=) @name::pg_catalog.text)
       AND (@step::pg_catalog.text OPERATOR(pg_catalog.=) '' OR o.step OPERATOR(pg_catalog.=) @step::pg_catalog.text)
       AND o.created_at OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) @age::pg_catalog.interval)
     ORDER BY o.id LIMIT @room::pg_catalog.int4)
) found
ORDER BY found.id
LIMIT @room::pg_catalog.int4;

-- name: FindOperation :one
-- FindOperation tells whose key an operation has, and how far it is.
SELECT o.scope, o.key, o.hash, o.name, o.state, o.step, coalesce(o.reason, '')::pg_catalog.text AS reason,
       pg_catalog.timestamptz_send(o.since)::pg_catalog.bytea AS since
FROM idem.operations o
WHERE o.id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid;
