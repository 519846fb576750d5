-- name: Claim :one
-- Claim claims the key for this transaction. If a record exists, or another transaction holds the
-- key, Claim changes nothing and returns no row. The primary key alone guarantees that a key is
-- claimed once. The advisory lock only makes Claim answer at once while the key is in progress; it
-- is NULL where it is not wanted. Claim stores the execution id in idem.claim until this
-- transaction ends. Load and Complete read it there.
--
-- statement_timestamp is the moment at which the statement arrived. clock_timestamp is volatile,
-- and the planner would put a subquery before the insert for it.
--
-- JSON is sent as its UTF-8 bytes, here and below, because its text depends on the encoding of the
-- session.
-- @wrapped
-- @in Key *Key
-- @prepared
INSERT INTO idem.records AS r (scope, key, hash, execution_id, created_at, expires_at, state)
SELECT @scope, @key, @hash, (@execution_id::text)::uuid,
       statement_timestamp(), statement_timestamp() + @ttl::interval, 'processing'
WHERE sqlc.narg(lock)::int8 IS NULL OR pg_try_advisory_xact_lock(sqlc.narg(lock)::int8)
ON CONFLICT (scope, key) DO NOTHING
RETURNING r.created_at,
          set_config('idem.claim', @execution_id::text, true) AS _;

-- name: ClaimAtOnce :one
-- ClaimAtOnce is Claim for a caller that may not wait. The insert would wait for another
-- transaction that is deleting the record, or that holds the key without the lock. ClaimAtOnce
-- limits that wait to Patience. It also limits the locks of one transaction, which idem.locks
-- counts: a claim beyond the limit tries the lock and does not keep it. It returns the previous
-- claim of the transaction, so that Reclaim can restore it. CASE fixes the order of evaluation. If
-- nothing was claimed, lock_timeout stays as ClaimAtOnce sets it until Calm, or until a rollback,
-- to a savepoint at least.
-- @wrapped
-- @in Key *Key
-- @prepared
INSERT INTO idem.records AS r (scope, key, hash, execution_id, created_at, expires_at, state)
SELECT @scope, @key, @hash, (@execution_id::text)::uuid,
       statement_timestamp(), statement_timestamp() + @ttl::interval, 'processing'
WHERE CASE
    WHEN set_config('idem.lock_timeout', current_setting('lock_timeout'), true) IS NULL THEN false
    WHEN set_config('lock_timeout', @patience, true) IS NULL THEN false
    WHEN sqlc.narg(lock)::int8 IS NULL THEN true
    WHEN length(current_setting('idem.locks', true)) >= @max_locks::int4 THEN
        CASE WHEN pg_try_advisory_lock(sqlc.narg(lock)::int8) THEN pg_advisory_unlock(sqlc.narg(lock)::int8) ELSE false END
    WHEN set_config('idem.locks', concat(current_setting('idem.locks', true), '|'), true) IS NULL THEN false
    ELSE pg_try_advisory_xact_lock(sqlc.narg(lock)::int8)
END
ON CONFLICT (scope, key) DO NOTHING
RETURNING r.created_at,
          coalesce(current_setting('idem.claim', true), '')::text AS previous,
          set_config('idem.claim', @execution_id::text, true) AS _,
          set_config('lock_timeout', current_setting('idem.lock_timeout'), true) AS _;

-- name: Calm :exec
-- Calm restores the lock_timeout that BeginMessages, ClaimAtOnce or TakeOver has changed.
-- @prepared
SELECT set_config('lock_timeout', current_setting('idem.lock_timeout'), true);

-- name: Reclaim :exec
-- Reclaim restores the claim that this transaction had made before a nested one.
-- @prepared
SELECT set_config('idem.claim', @execution_id, true);

-- name: TakeOver :one
-- TakeOver claims a key whose record has expired, and reuses the row. It never takes over a record
-- of the same execution: that caller asks for the outcome of a COMMIT, and the record is the
-- answer, however old it is. TakeOver follows a claim, which has taken the advisory lock if it
-- takes any. TakeOver only checks whether another session has the lock. It waits at most Patience
-- for a session that is deleting the record.
-- @in Key *Key
INSERT INTO idem.records AS r (scope, key, hash, execution_id, created_at, expires_at, state)
SELECT @scope, @key, @hash, (@execution_id::text)::uuid,
       clock_timestamp(), clock_timestamp() + @ttl::interval, 'processing'
WHERE CASE
    WHEN set_config('idem.lock_timeout', current_setting('lock_timeout'), true) IS NULL THEN false
    WHEN set_config('lock_timeout', @patience, true) IS NULL THEN false
    WHEN sqlc.narg(lock)::int8 IS NULL THEN true
    WHEN pg_try_advisory_lock(sqlc.narg(lock)::int8) THEN pg_advisory_unlock(sqlc.narg(lock)::int8)
    ELSE false
END
ON CONFLICT (scope, key) DO UPDATE
SET hash = EXCLUDED.hash, execution_id = EXCLUDED.execution_id,
    created_at = EXCLUDED.created_at, expires_at = EXCLUDED.expires_at, state = EXCLUDED.state,
    status = NULL, completed_at = NULL, header = NULL, body = NULL, sealed_by = NULL
WHERE r.expires_at <= clock_timestamp()
  AND r.execution_id <> EXCLUDED.execution_id
RETURNING r.created_at,
          coalesce(current_setting('idem.claim', true), '')::text AS previous,
          set_config('idem.claim', @execution_id::text, true) AS _,
          set_config('lock_timeout', current_setting('idem.lock_timeout'), true) AS _;

-- name: Load :one
-- Load reads the record of the key. It reads nothing if this transaction has just claimed the key,
-- so that unrelated transactions do not conflict under SERIALIZABLE. It is a separate statement
-- because the snapshot of the claim may be older than the commit of the call that won the key. It
-- reads no part of the response of a record with another hash.
-- @wrapped
-- @in Key *Key
-- @prepared
-- @replan
SELECT (hash = @hash::bytea)::bool AS same_hash,
       (execution_id::text)::text AS execution_id, state,
       coalesce(CASE WHEN hash = @hash THEN status END, 0)::int4 AS status,
       (CASE WHEN hash = @hash
             THEN convert_to(header::text, 'UTF8') END)::bytea AS header,
       (CASE WHEN hash = @hash THEN body END)::bytea AS body,
       coalesce(CASE WHEN hash = @hash THEN sealed_by END, '')::text AS sealed_by,
       created_at,
       completed_at,
       expires_at,
       clock_timestamp() AS loaded_at
FROM idem.records
WHERE coalesce(current_setting('idem.claim', true), '') <> @execution_id::text
  AND scope = @scope::text AND key = @key::text;

-- name: Complete :one
-- Complete stores the outcome in the record that this transaction has claimed. It is an upsert,
-- because an upsert needs no plan that could be a bad one, and no read that could conflict with
-- others. It divides by zero, so that the server does not reach a COMMIT queued behind it, if this
-- transaction is not the one that claimed: fn ended that transaction and began another one. It also
-- divides by zero if the row is gone or belongs to another execution. If the row is gone, the
-- upsert inserts a row without a hash, which Complete detects.
-- @in Key *Key
-- @prepared
INSERT INTO idem.records AS r (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body, sealed_by)
VALUES (@scope, @key, ''::bytea, (@execution_id::text)::uuid,
        clock_timestamp(), clock_timestamp(), @state,
        (@status::int4) / (CASE
            WHEN current_setting('idem.claim', true) = @execution_id THEN 1 ELSE 0 END)::int4,
        clock_timestamp(),
        (convert_from(@header::bytea, 'UTF8'))::jsonb, @body::bytea,
        sqlc.narg(sealed_by)::text)
ON CONFLICT (scope, key) DO UPDATE
SET state = EXCLUDED.state, status = EXCLUDED.status, completed_at = EXCLUDED.completed_at,
    expires_at = EXCLUDED.completed_at + @ttl::interval,
    header = EXCLUDED.header, body = EXCLUDED.body, sealed_by = EXCLUDED.sealed_by
RETURNING r.completed_at,
          r.expires_at,
          (1 / (CASE
            WHEN r.execution_id = (@execution_id::text)::uuid
             AND length(r.hash) > 0 THEN 1 ELSE 0 END)::int4) AS _;

-- name: StillClaimed :one
-- StillClaimed reports whether this transaction is still the one that claimed the key. A caller
-- asks when fn fails: a statement of fn may have ended the transaction and begun another one.
-- @in Key *Key
SELECT (coalesce(current_setting('idem.claim', true), '') = @execution_id::text)::bool AS holds;

-- name: Holder :one
-- Holder reports whether a transaction holds the key, and since when. An uncommitted claim is not
-- visible, but its advisory lock is. Since is NULL if this role may not see the session of the
-- holder.
SELECT (count(*) > 0)::bool AS held,
       min(activity.xact_start)::timestamptz AS since
FROM pg_catalog.pg_locks held
LEFT JOIN pg_catalog.pg_stat_activity activity ON activity.pid = held.pid
WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
  AND held.classid = (@lock_high::int8)::oid
  AND held.objid = (@lock_low::int8)::oid
  AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database());

-- name: Live :one
-- Live reads the record of a key, without its response, unless the record has expired.
SELECT state, (execution_id::text)::text AS execution_id,
       created_at,
       completed_at,
       expires_at
FROM idem.records
WHERE scope = @scope AND key = @key
  AND expires_at > clock_timestamp();
