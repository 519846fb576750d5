-- name: HoldKey :one
-- HoldKey turns the record that this transaction has claimed, or holds, into the record of an
-- operation. The key stays in progress between transactions, for as long as Room says. A Room of
-- zero releases the key. HoldKey is an upsert, like Complete. It divides by zero if the transaction
-- has no such record.
--
-- HoldKey makes the COMMIT wait for the disk where the session would not. A call may follow the
-- COMMIT, and a crash of the server must not lose that COMMIT. Other statements do the same:
-- AdvanceOperation; TakeOperation and TakeOperations, whose epochs fence; ReviveOperation,
-- CancelOperation and SendSignal, which report success to their callers. The name of the setting is
-- written in two parts. A gateway that refuses statements that set synchronous_commit would
-- otherwise refuse these, although they seldom set it.
-- @in Key *Key
-- @prepared
INSERT INTO idem.records AS r (scope, key, hash, execution_id, created_at, expires_at, state)
VALUES (@scope, @key, ''::bytea, (@execution_id::text)::uuid,
        clock_timestamp(), clock_timestamp(), 'running')
ON CONFLICT (scope, key) DO UPDATE
SET state = EXCLUDED.state, expires_at = EXCLUDED.expires_at + (@room::text)::interval
RETURNING (1 / (CASE
            WHEN current_setting('idem.claim', true) = @execution_id
             AND r.execution_id = (@execution_id::text)::uuid
             AND length(r.hash) > 0 THEN 1 ELSE 0 END)::int4) AS _,
          CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: BeginOperation :exec
-- BeginOperation inserts an operation, in its first commit. Without an owner the operation is
-- available to the next process after Pause. ClaimedAt, when the key was claimed, is sent as the
-- time since 1970, which every setting of a session reads alike. NULL means now. Parent is the
-- operation that awaits this one, NULL if this one is not a child.
-- @in Key *Key, At At
-- @prepared
INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, parent, epoch, owner, state, undoing, kind, step, seq,
                             since, wake_at, tries, attempts, undos, policy)
VALUES ((@operation_id::text)::uuid, @scope, @key, @hash,
        @name, @record_ttl, coalesce('1970-01-01 00:00:00+00'::timestamptz + sqlc.narg(claimed_at)::interval, clock_timestamp()),
        @input::bytea, (sqlc.narg(parent)::text)::uuid, 1, sqlc.narg(owner)::int4,
        'running', false, @kind::text, @step::text, @seq::int4, clock_timestamp(),
        clock_timestamp() + @pause::interval, 0, 0, sqlc.narg(undos)::int4, sqlc.narg(policy)::text);

-- name: AdvanceOperation :one
-- AdvanceOperation stores how far an operation is. Every later commit of the operation contains it,
-- and it fences the commit: it divides by zero, so that the server does not reach the COMMIT behind
-- it. It does so if another process has claimed the operation, or the operation is not running, or
-- this transaction is not the one that was begun for the operation. It also does so if the stored
-- cancellation differs from the one that this run knows; a NULL in Canceled skips this check.
-- AdvanceOperation is an upsert, like Complete, because an upsert needs no plan that could be a bad
-- one. Without an Error it clears the last error, because the operation has made progress.
-- @in At At, Error *StepError
-- @prepared
INSERT INTO idem.operations AS o (id, scope, key, hash, name, ttl, created_at, epoch, owner, state, undoing, kind, step, seq,
                                  since, wake_at, tries, attempts, ended_at, undos, policy,
                                  error_step, error_attempt, error_text, error_at, error_next_at)
VALUES ((@operation_id::text)::uuid, '', '', ''::bytea, '', 0, clock_timestamp(), 0,
        sqlc.narg(owner), @state, @undoing, @kind, @step,
        @seq::int4, clock_timestamp(),
        clock_timestamp() + @pause::interval, @tries::int4, 0,
        CASE WHEN @state::text <> 'running' THEN clock_timestamp() END,
        sqlc.narg(undos)::int4, sqlc.narg(policy)::text,
        sqlc.narg(error_step)::text, sqlc.narg(error_attempt)::int4, sqlc.narg(error_text)::bytea,
        CASE WHEN sqlc.narg(error_attempt)::int4 IS NOT NULL THEN clock_timestamp() END,
        CASE WHEN sqlc.narg(error_attempt)::int4 IS NOT NULL THEN clock_timestamp() + @pause::interval END)
ON CONFLICT (id) DO UPDATE
SET epoch = CASE WHEN o.state = 'running' THEN o.epoch ELSE 0 END,
    owner = EXCLUDED.owner, state = EXCLUDED.state, undoing = EXCLUDED.undoing, kind = EXCLUDED.kind, step = EXCLUDED.step,
    seq = EXCLUDED.seq,
    since = CASE WHEN o.seq = EXCLUDED.seq THEN o.since ELSE EXCLUDED.since END,
    wake_at = EXCLUDED.wake_at, tries = EXCLUDED.tries, attempts = EXCLUDED.attempts, ended_at = EXCLUDED.ended_at,
    undos = EXCLUDED.undos, policy = EXCLUDED.policy,
    error_step = EXCLUDED.error_step, error_attempt = EXCLUDED.error_attempt, error_text = EXCLUDED.error_text,
    error_at = EXCLUDED.error_at, error_next_at = EXCLUDED.error_next_at
RETURNING (1 / (CASE
            WHEN o.epoch = @epoch::int4
             AND (sqlc.narg(canceled)::bool IS NULL
                  OR o.canceled = sqlc.narg(canceled)::bool AND coalesce(o.without_calling, false) = @without_calling::bool)
             AND current_setting('idem.claim', true) = @operation_id::text
            THEN 1 ELSE 0 END)::int4) AS _,
          CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: RecordStep :exec
-- RecordStep stores a step. It follows AdvanceOperation or BeginOperation, which decide whether the
-- run may store it. If the new row has no due_at, the stored one stays. recorded_at is when the
-- current outcome was stored first; storing the same outcome again does not change it.
-- @wrapped
-- @in Step
-- @prepared
INSERT INTO idem.steps AS s (operation_id, seq, kind, name, due_at, recorded_at, outcome, value, undos, policy)
VALUES ((@operation_id::text)::uuid, @seq, @kind, @name,
        clock_timestamp() + sqlc.narg(pause)::interval, clock_timestamp(),
        @outcome, @value::bytea, sqlc.narg(undos)::int4, sqlc.narg(policy)::text)
ON CONFLICT (operation_id, seq) DO UPDATE
SET due_at = COALESCE(EXCLUDED.due_at, s.due_at), outcome = EXCLUDED.outcome, value = EXCLUDED.value,
    undos = EXCLUDED.undos, policy = EXCLUDED.policy,
    recorded_at = CASE WHEN s.outcome = EXCLUDED.outcome THEN s.recorded_at ELSE EXCLUDED.recorded_at END;

-- name: InsertStep :exec
-- InsertStep is RecordStep for a step that has no row, because an upsert writes more. It fails if
-- there is a row.
-- @wrapped
-- @in Step
-- @prepared
INSERT INTO idem.steps (operation_id, seq, kind, name, due_at, recorded_at, outcome, value, undos, policy)
VALUES ((@operation_id::text)::uuid, @seq, @kind, @name,
        clock_timestamp() + sqlc.narg(pause)::interval, clock_timestamp(),
        @outcome, @value::bytea, sqlc.narg(undos)::int4, sqlc.narg(policy)::text);

-- name: LoadSteps :many
-- LoadSteps reads the recorded steps of an operation. These are the steps that have a row, and the
-- call, or the call of an undo, that was begun alone and has no row. Calls that were begun together
-- have rows.
-- @out Step
SELECT s.seq, s.kind, s.name, s.outcome, s.value,
       s.due_at,
       s.undos, s.policy,
       clock_timestamp() AS loaded_at
FROM (
    SELECT r.seq, r.kind, r.name, r.outcome, r.value, r.due_at, coalesce(r.undos, 0) AS undos, coalesce(r.policy, '') AS policy FROM idem.steps r
    WHERE r.operation_id = (@operation_id::text)::uuid
    UNION ALL
    SELECT o.seq, o.kind, o.step, 'begun', NULL, NULL, coalesce(o.undos, 0), coalesce(o.policy, '') FROM idem.operations o
    WHERE o.id = (@operation_id::text)::uuid AND o.kind = ANY (ARRAY['call', 'undo'])
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id = o.id AND e.seq = o.seq)) s
ORDER BY s.seq;

-- name: TakeOperation :one
-- TakeOperation claims one operation, in a new epoch, if it is due and no live process works on it.
-- An owner is gone if it has neither a lock nor a lease. An operation that this process owns is
-- free, too, because the process asks only for operations that it does not work on. The owner in
-- the epoch Epoch may claim the operation again at any time.
--
-- A signal that the operation awaits makes it due. If a run that could see the signal has failed,
-- the operation is due only after its retry delay. TakeOperation waits for no lock: a locked row is
-- being committed.
--
-- An owner that is gone has died without releasing the operation. Deaths counts these owners, from
-- 0 again if the operation has made progress since. From 3 deaths on the operation is a suspect. A
-- process claims a suspect only if it says, in Alone, that it has no other suspect. If that process
-- dies, too, the suspect is not due at once: the claim sets its next time 1 to 64 seconds ahead.
-- @row Taken
UPDATE idem.operations AS o
SET epoch = o.epoch + 1, owner = @owner::int4, attempts = o.attempts + 1,
    taken_at = clock_timestamp(), deaths = taken.deaths,
    wake_at = CASE WHEN taken.deaths < 3 THEN o.wake_at
                   ELSE clock_timestamp() + ('1 second'::interval *
                        power(2::float8, LEAST(taken.deaths - 3, 6)::float8)) END
FROM (
    SELECT c.id, suspicion.deaths FROM idem.operations c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.attempts = 0 THEN 0 ELSE COALESCE(c.deaths, 0) END +
                                CASE WHEN c.owner IS NULL OR c.owner = @owner
                                OR c.epoch = @epoch THEN 0 ELSE 1 END AS deaths) suspicion
    WHERE (@alone::bool OR suspicion.deaths < 3)
      AND c.id = (@operation_id::text)::uuid
      AND c.state = 'running'
      AND (c.epoch = @epoch OR (
            (c.wake_at <= clock_timestamp()
             OR EXISTS (SELECT 1 FROM idem.signals s
                        JOIN idem.steps a ON a.operation_id = s.operation_id
                        WHERE s.operation_id = c.id AND NOT s.taken
                          AND a.seq = c.seq AND a.outcome = 'waiting'
                          AND (a.kind = 'await' AND s.name = c.step
                               OR a.kind = 'child' AND starts_with(s.name, '#'))
                          AND (c.attempts = 0 OR c.taken_at IS NULL OR s.sent_at > c.taken_at
               OR c.owner IS NOT NULL AND COALESCE(c.deaths, 0) < 3)))
            AND (c.owner IS NULL OR c.owner = @owner::int4
                 OR c.owner <> ALL (ARRAY(
                        SELECT l.objid::int8::int4 FROM pg_catalog.pg_locks l
                        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
                          AND l.classid = (1768187247::int8)::oid
                          AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
                        UNION ALL
                        SELECT e.instance FROM idem.leases e
                        WHERE e.expires_at > clock_timestamp())))))
    FOR NO KEY UPDATE OF c SKIP LOCKED) taken
WHERE o.id = taken.id
RETURNING (o.id::text)::text AS operation_id, o.scope, o.key, o.hash, o.name, o.ttl, o.input, o.epoch, o.undoing, o.canceled, coalesce(o.without_calling, false) AS without_calling, coalesce(o.without_code, false) AS without_code, o.kind, o.step, o.seq, o.tries, o.attempts, taken.deaths::int4 AS deaths,
          coalesce(o.parent::text, '')::text AS parent,
          o.created_at,
          o.since,
          clock_timestamp() AS loaded_at,
          CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: TakeOperations :many
-- TakeOperations claims due operations with these names, the longest due first. An operation is
-- also due if it was sent the signal, or the outcome of the child, that it awaits. The outcome of a
-- child is the only signal whose name may begin with a #.
--
-- Running lists the operations that this process works on. An operation that the process owns and
-- that is not in Running was lost by it, and may be claimed. An operation that was claimed or begun
-- in the last 5 seconds is an exception: the process may have listed it after this statement was
-- sent. TakeOperations claims at most one suspect, as TakeOperation describes them, and only if the
-- process has no suspect (Alone).
--
-- The clock is read once, so that due operations are found by an index and sleeping ones are not
-- read. The lower bound of wake_at tells the planner that few operations are due. The planner then
-- walks the index in the order of wake_at and stops at Room, instead of sorting all operations that
-- became due in an outage. The lists are subqueries, which are made an array or a hash table once.
-- A cast in the condition would be parsed again for every row.
-- @row Taken
-- @prepared
WITH present AS (
    SELECT l.objid::int8::int4 AS instance FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.classid = (1768187247::int8)::oid
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
    UNION ALL
    SELECT e.instance FROM idem.leases e
    WHERE e.expires_at > clock_timestamp()
), due AS (
    SELECT c.id, suspicion.deaths, c.wake_at AS ready FROM idem.operations c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.attempts = 0 THEN 0 ELSE COALESCE(c.deaths, 0) END +
                                CASE WHEN c.owner IS NULL OR c.owner = @owner THEN 0 ELSE 1 END AS deaths) suspicion
    WHERE c.state = 'running'
      AND c.wake_at >= '-infinity'::timestamptz AND c.wake_at <= (SELECT clock_timestamp())
      AND c.name = ANY (ARRAY(SELECT unnest((@names::text)::text[])))
      AND NOT c.id = ANY (SELECT unnest((@running::text)::uuid[]))
      AND (c.owner IS NULL
           OR c.owner = @owner
              AND COALESCE(c.taken_at, c.since) < (clock_timestamp() - '5 seconds'::interval)
           OR c.owner <> @owner
              AND c.owner <> ALL (ARRAY(SELECT present.instance FROM present)))
      AND (@alone::bool OR suspicion.deaths < 3)
    ORDER BY c.wake_at
    LIMIT @room::int4
    FOR NO KEY UPDATE OF c SKIP LOCKED
), signalled AS (
    SELECT c.id, suspicion.deaths, awaited.sent_at AS ready FROM idem.operations c
    CROSS JOIN LATERAL (SELECT CASE WHEN c.attempts = 0 THEN 0 ELSE COALESCE(c.deaths, 0) END +
                                CASE WHEN c.owner IS NULL OR c.owner = @owner::int4 THEN 0 ELSE 1 END AS deaths) suspicion
    CROSS JOIN LATERAL (
        SELECT s.sent_at FROM idem.signals s
        JOIN idem.steps a ON a.operation_id = s.operation_id
        WHERE s.operation_id = c.id AND NOT s.taken
          AND a.seq = c.seq AND a.outcome = 'waiting'
          AND (a.kind = 'await' AND s.name = c.step
               OR a.kind = 'child' AND starts_with(s.name, '#'))
          AND (c.attempts = 0 OR c.taken_at IS NULL OR s.sent_at > c.taken_at
               OR c.owner IS NOT NULL AND COALESCE(c.deaths, 0) < 3)
        LIMIT 1) awaited
    WHERE c.id = ANY (ARRAY(SELECT w.operation_id FROM idem.signals w WHERE NOT w.taken))
      AND c.state = 'running'
      AND c.wake_at > (SELECT clock_timestamp())
      AND c.name = ANY (ARRAY(SELECT unnest((@names::text)::text[])))
      AND NOT c.id = ANY (SELECT unnest((@running::text)::uuid[]))
      AND (c.owner IS NULL
           OR c.owner = @owner::int4
              AND COALESCE(c.taken_at, c.since) < (clock_timestamp() - '5 seconds'::interval)
           OR c.owner <> @owner::int4
              AND c.owner <> ALL (ARRAY(SELECT present.instance FROM present)))
      AND (@alone::bool OR suspicion.deaths < 3)
    ORDER BY awaited.sent_at
    LIMIT @room::int4
    FOR NO KEY UPDATE OF c SKIP LOCKED
), found AS (
    SELECT due.id, due.deaths, due.ready FROM due UNION ALL SELECT signalled.id, signalled.deaths, signalled.ready FROM signalled
), taken AS (
    SELECT found.id, found.deaths FROM found
    WHERE found.deaths < 3
       OR found.id = (SELECT first.id FROM found first WHERE first.deaths >= 3 ORDER BY first.ready LIMIT 1)
    ORDER BY found.ready
    LIMIT @room::int4
)
UPDATE idem.operations AS o
SET epoch = o.epoch + 1, owner = @owner::int4, attempts = o.attempts + 1,
    taken_at = clock_timestamp(), deaths = taken.deaths,
    wake_at = CASE WHEN taken.deaths < 3 THEN o.wake_at
                   ELSE clock_timestamp() + ('1 second'::interval *
                        power(2::float8, LEAST(taken.deaths - 3, 6)::float8)) END
FROM taken
WHERE o.id = taken.id
RETURNING (o.id::text)::text AS operation_id, o.scope, o.key, o.hash, o.name, o.ttl, o.input, o.epoch, o.undoing, o.canceled, coalesce(o.without_calling, false) AS without_calling, coalesce(o.without_code, false) AS without_code, o.kind, o.step, o.seq, o.tries, o.attempts, taken.deaths::int4 AS deaths,
          coalesce(o.parent::text, '')::text AS parent,
          o.created_at,
          o.since,
          clock_timestamp() AS loaded_at,
          CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: DueOperations :many
-- DueOperations lists the operations that TakeOperations would claim, except those in But, which
-- are listed as id/epoch.
-- @row Due
WITH present AS (
    SELECT l.objid::int8::int4 AS instance FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.classid = (1768187247::int8)::oid
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
    UNION ALL
    SELECT e.instance FROM idem.leases e
    WHERE e.expires_at > clock_timestamp()
), due AS (
    SELECT c.id, c.name, c.epoch, c.wake_at AS ready FROM idem.operations c
    WHERE c.state = 'running'
      AND c.wake_at >= '-infinity'::timestamptz AND c.wake_at <= (SELECT clock_timestamp())
      AND c.name = ANY (ARRAY(SELECT unnest((@names::text)::text[])))
      AND NOT (c.id::text || '/' || c.epoch::text) = ANY (SELECT unnest((@but::text)::text[]))
      AND (c.owner IS NULL OR c.owner <> ALL (ARRAY(SELECT present.instance FROM present)))
    ORDER BY c.wake_at
    LIMIT @room
), signalled AS (
    SELECT c.id, c.name, c.epoch, awaited.sent_at AS ready FROM idem.operations c
    CROSS JOIN LATERAL (
        SELECT s.sent_at FROM idem.signals s
        JOIN idem.steps a ON a.operation_id = s.operation_id
        WHERE s.operation_id = c.id AND NOT s.taken
          AND a.seq = c.seq AND a.outcome = 'waiting'
          AND (a.kind = 'await' AND s.name = c.step
               OR a.kind = 'child' AND starts_with(s.name, '#'))
          AND (c.attempts = 0 OR c.taken_at IS NULL OR s.sent_at > c.taken_at
               OR c.owner IS NOT NULL AND COALESCE(c.deaths, 0) < 3)
        LIMIT 1) awaited
    WHERE c.id = ANY (ARRAY(SELECT w.operation_id FROM idem.signals w WHERE NOT w.taken))
      AND c.state = 'running'
      AND c.wake_at > (SELECT clock_timestamp())
      AND c.name = ANY (ARRAY(SELECT unnest((@names::text)::text[])))
      AND NOT (c.id::text || '/' || c.epoch::text) = ANY (SELECT unnest((@but::text)::text[]))
      AND (c.owner IS NULL OR c.owner <> ALL (ARRAY(SELECT present.instance FROM present)))
    ORDER BY awaited.sent_at
    LIMIT @room
)
SELECT found.id::text AS operation_id, found.name, found.epoch
FROM (SELECT due.id, due.name, due.epoch, due.ready FROM due
      UNION ALL SELECT signalled.id, signalled.name, signalled.epoch, signalled.ready FROM signalled) found
ORDER BY found.ready
LIMIT @room::int4;

-- name: ShowOperation :one
-- ShowOperation reads how far an operation is, and its last error.
-- @out Error StepError
SELECT o.scope, o.hash, o.name, o.state, o.epoch, o.undoing, o.canceled, coalesce(o.without_calling, false) AS without_calling,
       coalesce(o.without_code, false) AS without_code, o.kind, o.step, o.attempts, coalesce(o.deaths, 0) AS deaths,
       coalesce(o.reason, '')::text AS reason, coalesce(o.reason_step, '')::text AS reason_step, coalesce(o.reason_text, '')::text AS reason_text,
       coalesce(o.parent::text, '')::text AS parent,
       coalesce(o.error_step, '')::text AS error_step, coalesce(o.error_attempt, 0) AS error_attempt, o.error_text,
       o.error_at,
       o.error_next_at,
       o.since,
       o.wake_at,
       clock_timestamp() AS loaded_at
FROM idem.operations o
WHERE o.id = (@operation_id::text)::uuid;

-- name: ListSteps :many
-- ListSteps reads the recorded steps as LoadSteps does, without their values.
-- @out Step
SELECT s.seq, s.kind, s.name, s.outcome,
       s.due_at,
       s.recorded_at,
       s.undos, s.policy
FROM (
    SELECT r.seq, r.kind, r.name, r.outcome, r.due_at, r.recorded_at, coalesce(r.undos, 0) AS undos, coalesce(r.policy, '') AS policy FROM idem.steps r
    WHERE r.operation_id = (@operation_id::text)::uuid
    UNION ALL
    SELECT o.seq, o.kind, o.step, 'begun', NULL, o.since, coalesce(o.undos, 0), coalesce(o.policy, '') FROM idem.operations o
    WHERE o.id = (@operation_id::text)::uuid AND o.kind = ANY (ARRAY['call', 'undo'])
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id = o.id AND e.seq = o.seq)) s
ORDER BY s.seq;

-- name: LoadHistory :many
-- LoadHistory reads an operation and its recorded steps in one statement, so that both are as of
-- one moment. The steps are those of LoadSteps. The operation comes before them, as number 0, with
-- its name, its state and its input.
-- @wrapped
-- @out Step
SELECT h.seq, h.kind, h.name, h.outcome, h.value, h.undos, h.undoing, h.canceled
FROM (
    SELECT 0 AS seq, '' AS kind, w.name, w.state AS outcome, w.input AS value, 0 AS undos, w.undoing, w.canceled FROM idem.operations w
    WHERE w.id = (@operation_id::text)::uuid
    UNION ALL
    SELECT r.seq, r.kind, r.name, r.outcome, r.value, coalesce(r.undos, 0), false, false FROM idem.steps r
    WHERE r.operation_id = (@operation_id::text)::uuid
    UNION ALL
    SELECT o.seq, o.kind, o.step, 'begun', NULL, coalesce(o.undos, 0), false, false FROM idem.operations o
    WHERE o.id = (@operation_id::text)::uuid AND o.kind = ANY (ARRAY['call', 'undo'])
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id = o.id AND e.seq = o.seq)) h
ORDER BY h.seq;

-- name: ReleaseOperation :exec
-- ReleaseOperation releases an operation to the next caller or worker, after Pause, or at once if it
-- was canceled and the run does not know that. It stores the number of attempts at the current call,
-- and the error of the run if there is one.
-- @in Error *StepError
UPDATE idem.operations
SET owner = NULL, tries = @tries,
    wake_at = clock_timestamp() + CASE WHEN canceled = @canceled THEN @pause::interval ELSE '0 seconds' END,
    error_step = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_step ELSE sqlc.narg(error_step)::text END,
    error_text = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_text ELSE sqlc.narg(error_text)::bytea END,
    error_at = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_at ELSE clock_timestamp() END,
    error_next_at = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_next_at ELSE clock_timestamp() + CASE WHEN canceled = @canceled THEN @pause::interval ELSE '0 seconds' END END,
    error_attempt = coalesce(sqlc.narg(error_attempt)::int4, error_attempt)
WHERE id = (@operation_id::text)::uuid
  AND epoch = @epoch AND state = 'running';

-- name: NoteFailure :exec
-- NoteFailure stores the error of an attempt, the number of attempts, and when the next one
-- follows. The operation keeps its owner.
-- @in Error StepError
UPDATE idem.operations
SET tries = @tries::int4, error_step = @error_step::text, error_attempt = @attempt::int4, error_text = @error_text::bytea,
    error_at = clock_timestamp(), error_next_at = clock_timestamp() + @pause::interval
WHERE id = (@operation_id::text)::uuid
  AND epoch = @epoch AND state = 'running';

-- name: IsCanceled :one
-- IsCanceled reads whether and how an operation was canceled, and its epoch. A run reads it before
-- each attempt at a call that follows a pause.
SELECT epoch, canceled, coalesce(without_calling, false) AS without_calling FROM idem.operations
WHERE id = (@operation_id::text)::uuid;

-- name: ParkOperation :execrows
-- ParkOperation parks an operation until a person decides, unless a Cancel has arrived that the run
-- does not know. A NULL in Canceled skips this check. The step in progress stays as it is. An Error
-- replaces the last error.
-- @in Error *StepError
UPDATE idem.operations
SET state = 'parked', owner = NULL, tries = @tries::int4, reason = @reason::text, reason_step = @reason_step::text, reason_text = @reason_text::text,
    error_step = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_step ELSE sqlc.narg(error_step)::text END,
    error_text = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_text ELSE sqlc.narg(error_text)::bytea END,
    error_at = CASE WHEN sqlc.narg(error_attempt)::int4 IS NULL THEN error_at ELSE clock_timestamp() END,
    error_next_at = NULL,
    error_attempt = coalesce(sqlc.narg(error_attempt)::int4, error_attempt)
WHERE id = (@operation_id::text)::uuid
  AND epoch = @epoch AND state = 'running'
  AND (sqlc.narg(canceled)::bool IS NULL
       OR canceled = sqlc.narg(canceled)::bool AND coalesce(without_calling, false) = @without_calling::bool
          AND coalesce(without_code, false) = @without_code::bool);

-- name: ReviveOperation :one
-- ReviveOperation resumes a parked operation. With a FromEpoch it does so only if no process has
-- claimed the operation since. With Forget the call that was begun alone is no longer in progress,
-- and the caller records a step with the outcome of the call.
UPDATE idem.operations AS o
SET state = 'running', reason = NULL, reason_step = NULL, reason_text = NULL,
    wake_at = CASE WHEN o.wake_at < clock_timestamp() THEN o.wake_at ELSE clock_timestamp() END,
    owner = NULL, epoch = o.epoch + 1, attempts = 0, tries = 0,
    kind = CASE WHEN @forget::bool THEN '' ELSE o.kind END,
    seq = CASE WHEN @forget::bool THEN 0 ELSE o.seq END
WHERE o.id = (@operation_id::text)::uuid
  AND o.state = 'parked'
  AND (@from_epoch::int4 = 0 OR o.epoch = @from_epoch::int4)
RETURNING o.key, o.epoch,
          CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: CancelOperation :one
-- CancelOperation cancels a running or parked operation, which is then undone. A running operation
-- keeps its owner, which reads the cancellation at its next commit or attempt. A second
-- cancellation with the same options changes nothing. Runs that began before the first cancellation
-- do not count.
UPDATE idem.operations AS o
SET state = 'running', canceled = true, without_calling = @without_calling::bool,
    without_code = coalesce(o.without_code, false) OR @without_code::bool, reason = NULL, reason_step = NULL, reason_text = NULL,
    wake_at = CASE WHEN o.wake_at < clock_timestamp() THEN o.wake_at ELSE clock_timestamp() END,
    owner = CASE WHEN o.state = 'running' THEN o.owner END,
    epoch = CASE WHEN o.state = 'running' THEN o.epoch ELSE o.epoch + 1 END,
    attempts = CASE WHEN o.reason = 'function_failed' THEN o.attempts ELSE 0 END
WHERE o.id = (@operation_id::text)::uuid
  AND (o.state = 'parked' OR o.state = 'running')
  AND NOT (o.canceled AND coalesce(o.without_calling, false) = @without_calling::bool
           AND (coalesce(o.without_code, false) OR NOT @without_code::bool))
RETURNING o.step, o.key,
          CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _;

-- name: CallsInDoubt :many
-- CallsInDoubt lists the calls, and the calls of undos, that were begun and have no recorded
-- outcome. Before them it lists the call whose value was given by a person and does not decode.
-- That call is listed only if no step before it has the same name, because that step may be the one
-- that does not decode. HasRow reports whether the call has a row in idem.steps.
-- @out Step
-- @row InDoubt
SELECT s.seq, s.kind, s.name, s.outcome, s.undos, s.policy, s.has_row
FROM (
    SELECT r.seq, r.kind, r.name, r.outcome, coalesce(r.undos, 0) AS undos, coalesce(r.policy, '') AS policy, true AS has_row FROM idem.steps r
    JOIN idem.operations p ON p.id = r.operation_id
    WHERE r.operation_id = (@operation_id::text)::uuid
      AND (r.outcome = 'begun'
           OR r.outcome = 'resolved' AND p.reason = 'value_unreadable' AND r.name = p.reason_step
              AND NOT EXISTS (SELECT 1 FROM idem.steps t
                              WHERE t.operation_id = r.operation_id AND t.name = r.name AND t.seq < r.seq))
    UNION ALL
    SELECT o.seq, o.kind, o.step, 'begun', coalesce(o.undos, 0), coalesce(o.policy, ''), false FROM idem.operations o
    WHERE o.id = (@operation_id::text)::uuid AND o.kind = ANY (ARRAY['call', 'undo'])
      AND NOT EXISTS (SELECT 1 FROM idem.steps e
                      WHERE e.operation_id = o.id AND e.seq = o.seq)) s
ORDER BY s.outcome COLLATE "C" DESC, s.seq;

-- name: Disown :exec
-- Disown releases the operations that this process owns and does not work on. It leaves alone those
-- that were claimed or begun in the last 5 seconds: the process may have listed them after this
-- statement was sent. A suspect is due at once, because its process has not died.
UPDATE idem.operations
SET owner = NULL, taken_at = NULL,
    wake_at = CASE WHEN attempts > 0 AND deaths >= 3 THEN LEAST(wake_at, clock_timestamp()) ELSE wake_at END
WHERE state = 'running' AND owner = @owner::int4
  AND NOT id = ANY (SELECT unnest((@running::text)::uuid[]))
  AND COALESCE(taken_at, since) < (SELECT clock_timestamp() - '5 seconds'::interval);

-- name: SendSignal :one
-- SendSignal stores a signal for an operation that has not ended, unless a signal of that name is
-- stored. If the stored signal has parked the operation because it does not decode, SendSignal
-- replaces it, because the operation has not received it. The replacement keeps the time of the
-- first one, so that it is in time if the first one was.
--
-- SendSignal locks the operation against a purge and blocks no other statement of it, whatever step
-- the operation is at. A process that looks for due operations finds the signal. SendSignal refuses
-- the signal if the input of the operation begins with Unless, which may be NULL. It so refuses a
-- signal that was sent without a Sealer to a sealed operation.
-- @pgx
WITH target AS (
    SELECT o.id, o.ended_at, coalesce(substr(o.input, 1, octet_length(sqlc.narg(unless)::bytea)) = sqlc.narg(unless)::bytea, false) AS refused,
           o.state = 'parked' AND coalesce(o.reason = 'signal_unreadable' AND o.reason_step = @name::text, false) AS undecoded
    FROM idem.operations o
    WHERE o.id = (@operation_id::text)::uuid
    FOR KEY SHARE
), sent AS (
    INSERT INTO idem.signals (operation_id, name, sent_at, value, taken)
    SELECT target.id, @name, clock_timestamp(), @value, false FROM target
    WHERE target.ended_at IS NULL AND NOT target.refused
    ON CONFLICT (operation_id, name) DO NOTHING
), replaced AS (
    UPDATE idem.signals s SET value = @value
    FROM target
    WHERE s.operation_id = target.id AND s.name = @name AND NOT s.taken
      AND target.undecoded AND NOT target.refused
)
SELECT (count(*) > 0)::bool AS known, (count(*) FILTER (WHERE target.refused AND target.ended_at IS NULL) > 0)::bool AS refused,
       CASE WHEN current_setting('synchronous_commit', true) = 'off' THEN set_config('synchronous' || '_commit', 'on', true) END AS _
FROM target;

-- name: ReadSignal :one
-- ReadSignal reads the value of a signal, and when it was sent.
SELECT value, sent_at FROM idem.signals
WHERE operation_id = (@operation_id::text)::uuid
  AND name = @name;

-- name: TakeSignal :exec
-- TakeSignal marks a signal as taken: the operation has recorded it.
UPDATE idem.signals SET taken = true
WHERE operation_id = (@operation_id::text)::uuid
  AND name = @name;

-- name: DropSignals :exec
-- DropSignals marks all other signals of an operation as taken: the operation has ended and will
-- not read them.
UPDATE idem.signals SET taken = true
WHERE operation_id = (@operation_id::text)::uuid AND NOT taken;

-- name: NewInstance :one
-- NewInstance returns a new number for a process. It also returns the pid of the backend, which
-- shows whether the session is the client's own: a pooler gives its clients other pids.
SELECT nextval('idem.instances'::regclass)::int4 AS instance,
       pg_backend_pid()::int4 AS backend;

-- name: AppearInSession :one
-- AppearInSession shows that an instance is alive, for as long as this session lives. The session
-- has no other use. The settings let the server notice soon that a client has vanished without
-- closing the connection. They have no effect on a Unix socket.
SELECT pg_try_advisory_lock(1768187247, @instance::int4)::bool AS held,
       set_config('tcp_keepalives_idle', '5', false) AS _,
       set_config('tcp_keepalives_interval', '2', false) AS _,
       set_config('tcp_keepalives_count', '3', false) AS _,
       set_config('tcp_user_timeout', '10s', false) AS _,
       set_config('idle_session_timeout', '0', false) AS _,
       set_config('application_name', 'idem presence', false) AS _;

-- name: StandGuard :one
-- StandGuard makes this session one of the two guards of the database, unless it is one already or
-- both exist. It also counts the processes that have a presence session. Like all statements on
-- such a session it reads no table, because reading a table could wait for a lock.
SELECT CASE WHEN @held_slot::int4 > 0 THEN @held_slot
            WHEN pg_try_advisory_lock(1768187248, 1) THEN 1
            WHEN pg_try_advisory_lock(1768187248, 2) THEN 2
            ELSE 0 END::int4 AS slot,
       (SELECT count(*) FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.classid = (1768187247::int8)::oid
          AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()))::int4 AS processes;

-- name: Listen :exec
-- Listen subscribes this session to notifications. A guard sends one when it finds work that its
-- own process does not claim.
LISTEN idem_operations;

-- name: Tell :exec
-- Tell notifies the listening processes of the names of due operations, separated by newlines. An
-- empty text means that a guard is wanted, or has something to watch. No commit of a caller
-- notifies, because a transaction that notifies waits for all others that notify.
SELECT pg_notify('idem_operations', @names::text);

-- name: Watch :one
-- Watch reads what a guard watches. It returns the other instances that own running operations and
-- have a session, the names of the operations that TakeOperations would claim, and the numbers of
-- guards and processes. It does not read sleeping operations. It reads up to Room due operations;
-- More reports that it has reached that limit.
WITH locks AS MATERIALIZED (
    SELECT l.classid::int8 AS class, l.objid::int8::int4 AS instance FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.classid = ANY (ARRAY[(1768187247::int8)::oid, (1768187248::int8)::oid])
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
), present AS MATERIALIZED (
    SELECT locks.instance FROM locks WHERE locks.class = 1768187247
    UNION ALL
    SELECT e.instance FROM idem.leases e
    WHERE e.expires_at > clock_timestamp()
), due AS MATERIALIZED (
    SELECT o.owner, o.name FROM idem.operations o
    WHERE o.state = 'running'
      AND o.wake_at >= '-infinity'::timestamptz AND o.wake_at <= (SELECT clock_timestamp())
    LIMIT @room::int4
), signalled AS MATERIALIZED (
    SELECT c.name FROM idem.operations c
    WHERE c.id = ANY (ARRAY(SELECT w.operation_id FROM idem.signals w WHERE NOT w.taken))
      AND c.state = 'running'
      AND c.wake_at > (SELECT clock_timestamp())
      AND (c.owner IS NULL OR c.owner <> ALL (ARRAY(SELECT present.instance FROM present)))
      AND EXISTS (SELECT 1 FROM idem.signals s
                  JOIN idem.steps a ON a.operation_id = s.operation_id
                  WHERE s.operation_id = c.id AND NOT s.taken
                    AND a.seq = c.seq AND a.outcome = 'waiting'
                    AND (a.kind = 'await' AND s.name = c.step
                         OR a.kind = 'child' AND starts_with(s.name, '#'))
                    AND (c.attempts = 0 OR c.taken_at IS NULL OR s.sent_at > c.taken_at
                         OR c.owner IS NOT NULL AND COALESCE(c.deaths, 0) < 3))
)
SELECT array_to_string(ARRAY(
           SELECT DISTINCT due.owner FROM due
           WHERE due.owner <> @instance::int4
             AND due.owner = ANY (ARRAY(SELECT locks.instance FROM locks WHERE locks.class = 1768187247))), ',')::text AS owners,
       array_to_string(ARRAY(
           SELECT due.name FROM due
           WHERE due.owner IS NULL OR due.owner <> ALL (ARRAY(SELECT present.instance FROM present))
           UNION
           SELECT signalled.name FROM signalled), E'\n')::text AS names,
       EXISTS (SELECT 1 FROM due WHERE due.owner IS NOT NULL)::bool AS busy,
       ((SELECT count(*) FROM due) >= @room::int4)::bool AS more,
       (SELECT count(*) FROM locks WHERE locks.class = 1768187248)::int4 AS guards,
       (SELECT count(*) FROM locks WHERE locks.class = 1768187247)::int4 AS processes,
       clock_timestamp() AS watched_at;

-- name: SeeGone :one
-- SeeGone returns which of these instances no longer hold the lock on their number. It takes the
-- lock of each such instance until its transaction ends, and no other lock.
SELECT array_to_string(ARRAY(
    SELECT i.instance FROM (SELECT unnest((@instances::text)::int4[]) AS instance) i
    WHERE pg_try_advisory_xact_lock_shared(1768187247, i.instance)), ',')::text AS gone;

-- name: StandDown :exec
-- StandDown releases the slot of a guard.
SELECT pg_advisory_unlock(1768187248, @slot);

-- name: RenewLease :exec
-- RenewLease shows that an instance is alive for the next TTL.
INSERT INTO idem.leases (instance, expires_at)
VALUES (@instance, clock_timestamp() + @ttl::interval)
ON CONFLICT (instance) DO UPDATE SET expires_at = EXCLUDED.expires_at;

-- name: EndLease :exec
-- EndLease deletes the lease of an instance that ends, and the leases that expired more than a day
-- ago.
DELETE FROM idem.leases
WHERE instance = @instance
   OR expires_at < (clock_timestamp() - '1 day'::interval);

-- name: ListOperations :many
-- ListOperations lists operations in the order of their ids, which is stable and has an index.
-- Running and parked operations have indexes of their own, and are few beside those that have
-- ended. Each branch is executed only if its state is asked for.
SELECT found.id::text AS operation_id, found.scope, found.name, found.state, found.undoing, found.step,
       found.attempts, coalesce(found.reason, '')::text AS reason, coalesce(found.reason_text, '')::text AS reason_text,
       found.created_at,
       found.since,
       found.ended_at
FROM (
    (SELECT o.id, o.scope, o.name, o.state, o.undoing, o.reason_step AS step, o.attempts, o.reason, o.reason_text, o.created_at, o.since, o.ended_at FROM idem.operations o
     WHERE o.state = 'parked' AND @state::text = 'parked'
       AND o.id > (@after_operation::text)::uuid
       AND starts_with(o.scope, @scope)
       AND (@name::text = '' OR o.name = @name)
       AND (@step::text = '' OR o.reason_step = @step::text)
       AND o.created_at <= (SELECT clock_timestamp() - @age::interval)
     ORDER BY o.id LIMIT @room::int4)
    UNION ALL
    (SELECT o.id, o.scope, o.name, o.state, o.undoing, o.step, o.attempts, o.reason, o.reason_text, o.created_at, o.since, o.ended_at FROM idem.operations o
     WHERE o.state = 'running' AND @state::text = 'running'
       AND o.id > (@after_operation::text)::uuid
       AND starts_with(o.scope, @scope::text)
       AND (@name::text = '' OR o.name = @name::text)
       AND (@step::text = '' OR o.step = @step::text)
       AND o.created_at <= (SELECT clock_timestamp() - @age::interval)
     ORDER BY o.id LIMIT @room::int4)
    UNION ALL
    (SELECT o.id, o.scope, o.name, o.state, o.undoing, CASE WHEN o.state = 'parked' THEN o.reason_step ELSE o.step END, o.attempts, o.reason, o.reason_text, o.created_at, o.since, o.ended_at FROM idem.operations o
     WHERE @state::text <> 'parked' AND @state::text <> 'running'
       AND (@state::text = '' OR o.state = @state::text)
       AND o.id > (@after_operation::text)::uuid
       AND starts_with(o.scope, @scope::text)
       AND (@name::text = '' OR o.name = @name::text)
       AND (@step::text = '' OR (CASE WHEN o.state = 'parked' THEN o.reason_step ELSE o.step END) = @step::text)
       AND o.created_at <= (SELECT clock_timestamp() - @age::interval)
     ORDER BY o.id LIMIT @room::int4)
) found
ORDER BY found.id
LIMIT @room::int4;

-- name: FindOperation :one
-- FindOperation reads the scope and the key of an operation, and its state.
SELECT o.scope, o.key, o.hash, o.name, o.state, coalesce(o.reason_step, '')::text AS step, coalesce(o.reason, '')::text AS reason,
       coalesce(o.reason_text, '')::text AS reason_text,
       o.since
FROM idem.operations o
WHERE o.id = (@operation_id::text)::uuid;
