-- name: Claim :one
-- Claim takes the key for this transaction, or touches nothing: no row where a record exists, and none where another
-- transaction holds the key. That a key is claimed once rests on the primary key alone. The advisory lock only makes a key
-- in flight answer at once; lock is NULL where it is not wanted. idem.claim says, until this transaction ends, which claim
-- it has made: Load and Complete ask for it.
--
-- Here as below every function, operator and type is named with its schema, so that no search_path changes what a statement
-- does, and no text form is used that depends on a session's settings: moments travel as timestamptz_send gives them, JSON as
-- its UTF-8 bytes.
INSERT INTO idem.records AS r (scope, key, hash, operation_id, created_at, expires_at, state)
SELECT @scope::pg_catalog.text, @key::pg_catalog.text, @hash::pg_catalog.bytea, (@operation_id::pg_catalog.text)::pg_catalog.uuid,
       pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @ttl::pg_catalog.interval, 'processing'
WHERE sqlc.narg(lock)::pg_catalog.int8 IS NULL OR pg_catalog.pg_try_advisory_xact_lock(sqlc.narg(lock)::pg_catalog.int8)
ON CONFLICT (scope, key) DO NOTHING
RETURNING pg_catalog.timestamptz_send(r.created_at)::pg_catalog.bytea AS created_at,
          pg_catalog.timestamptz_send(r.expires_at)::pg_catalog.bytea AS expires_at,
          pg_catalog.set_config('idem.claim', @operation_id::pg_catalog.text, true)::pg_catalog.text AS claim;

-- name: ClaimAtOnce :one
-- ClaimAtOnce is Claim for whoever may not wait: the insert would, for another transaction that is deleting the record, or
-- that holds the key without the lock. It also bounds the locks of one transaction, which idem.locks counts: a claim beyond
-- them asks for the lock and does not keep it. And it tells the claim that this one follows on, so that it can be put back.
-- CASE fixes the order. If nothing was claimed, lock_timeout stays as it is set here until a rollback, to a savepoint at
-- least, or Calm.
INSERT INTO idem.records AS r (scope, key, hash, operation_id, created_at, expires_at, state)
SELECT @scope::pg_catalog.text, @key::pg_catalog.text, @hash::pg_catalog.bytea, (@operation_id::pg_catalog.text)::pg_catalog.uuid,
       pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @ttl::pg_catalog.interval, 'processing'
WHERE CASE
    WHEN pg_catalog.set_config('idem.lock_timeout', pg_catalog.current_setting('lock_timeout'), true) IS NULL THEN false
    WHEN pg_catalog.set_config('lock_timeout', @patience::pg_catalog.text, true) IS NULL THEN false
    WHEN sqlc.narg(lock)::pg_catalog.int8 IS NULL THEN true
    WHEN pg_catalog.length(pg_catalog.current_setting('idem.locks', true)) OPERATOR(pg_catalog.>=) @max_locks::pg_catalog.int4 THEN
        CASE WHEN pg_catalog.pg_try_advisory_lock(sqlc.narg(lock)::pg_catalog.int8) THEN pg_catalog.pg_advisory_unlock(sqlc.narg(lock)::pg_catalog.int8) ELSE false END
    WHEN pg_catalog.set_config('idem.locks', pg_catalog.concat(pg_catalog.current_setting('idem.locks', true), '|'), true) IS NULL THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock(sqlc.narg(lock)::pg_catalog.int8)
END
ON CONFLICT (scope, key) DO NOTHING
RETURNING pg_catalog.timestamptz_send(r.created_at)::pg_catalog.bytea AS created_at,
          pg_catalog.timestamptz_send(r.expires_at)::pg_catalog.bytea AS expires_at,
          coalesce(pg_catalog.current_setting('idem.claim', true), '')::pg_catalog.text AS previous,
          pg_catalog.set_config('idem.claim', @operation_id::pg_catalog.text, true)::pg_catalog.text AS claim,
          pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('idem.lock_timeout'), true)::pg_catalog.text AS lock_timeout;

-- name: Calm :exec
-- Calm gives lock_timeout back what ClaimAtOnce has changed.
SELECT pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('idem.lock_timeout'), true);

-- name: Reclaim :exec
-- Reclaim puts back the claim that this transaction had made before another one inside it.
SELECT pg_catalog.set_config('idem.claim', @operation_id::pg_catalog.text, true);

-- name: TakeOver :one
-- TakeOver claims a key whose record has expired, in place. A record of our own is never taken over: then the call is asking
-- what became of a COMMIT, and the record is the answer however old it is. It follows a claim, which has taken the lock if it
-- takes any; here it is only asked whether somebody else has it. It waits no longer than patience for somebody who is deleting
-- the record.
INSERT INTO idem.records AS r (scope, key, hash, operation_id, created_at, expires_at, state)
SELECT @scope::pg_catalog.text, @key::pg_catalog.text, @hash::pg_catalog.bytea, (@operation_id::pg_catalog.text)::pg_catalog.uuid,
       pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @ttl::pg_catalog.interval, 'processing'
WHERE CASE
    WHEN pg_catalog.set_config('idem.lock_timeout', pg_catalog.current_setting('lock_timeout'), true) IS NULL THEN false
    WHEN pg_catalog.set_config('lock_timeout', @patience::pg_catalog.text, true) IS NULL THEN false
    WHEN sqlc.narg(lock)::pg_catalog.int8 IS NULL THEN true
    WHEN pg_catalog.pg_try_advisory_lock(sqlc.narg(lock)::pg_catalog.int8) THEN pg_catalog.pg_advisory_unlock(sqlc.narg(lock)::pg_catalog.int8)
    ELSE false
END
ON CONFLICT (scope, key) DO UPDATE
SET hash = EXCLUDED.hash, operation_id = EXCLUDED.operation_id,
    created_at = EXCLUDED.created_at, expires_at = EXCLUDED.expires_at, state = EXCLUDED.state,
    status = NULL, completed_at = NULL, header = NULL, body = NULL, sealed_by = NULL
WHERE r.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
  AND r.operation_id OPERATOR(pg_catalog.<>) EXCLUDED.operation_id
RETURNING pg_catalog.timestamptz_send(r.created_at)::pg_catalog.bytea AS created_at,
          pg_catalog.timestamptz_send(r.expires_at)::pg_catalog.bytea AS expires_at,
          coalesce(pg_catalog.current_setting('idem.claim', true), '')::pg_catalog.text AS previous,
          pg_catalog.set_config('idem.claim', @operation_id::pg_catalog.text, true)::pg_catalog.text AS claim,
          pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('idem.lock_timeout'), true)::pg_catalog.text AS lock_timeout;

-- name: Load :one
-- Load reads the record of the key, unless this transaction has just claimed it: then nothing is read, which is what keeps
-- strangers apart under SERIALIZABLE. It is a statement of its own because the snapshot of the claim may be older than the
-- commit of whoever won the key. Of a record with another hash no part of the response is read.
SELECT (hash OPERATOR(pg_catalog.=) @hash::pg_catalog.bytea)::pg_catalog.bool AS same_hash,
       (operation_id::pg_catalog.text)::pg_catalog.text AS operation_id, state,
       coalesce(CASE WHEN hash OPERATOR(pg_catalog.=) @hash::pg_catalog.bytea THEN status END, 0)::pg_catalog.int4 AS status,
       (CASE WHEN hash OPERATOR(pg_catalog.=) @hash::pg_catalog.bytea
             THEN pg_catalog.convert_to(header::pg_catalog.text, 'UTF8') END)::pg_catalog.bytea AS header,
       (CASE WHEN hash OPERATOR(pg_catalog.=) @hash::pg_catalog.bytea THEN body END)::pg_catalog.bytea AS body,
       coalesce(CASE WHEN hash OPERATOR(pg_catalog.=) @hash::pg_catalog.bytea THEN sealed_by END, '')::pg_catalog.text AS sealed_by,
       pg_catalog.timestamptz_send(created_at)::pg_catalog.bytea AS created_at,
       pg_catalog.timestamptz_send(completed_at)::pg_catalog.bytea AS completed_at,
       pg_catalog.timestamptz_send(expires_at)::pg_catalog.bytea AS expires_at,
       pg_catalog.timestamptz_send(pg_catalog.clock_timestamp())::pg_catalog.bytea AS loaded_at
FROM idem.records
WHERE coalesce(pg_catalog.current_setting('idem.claim', true), '') OPERATOR(pg_catalog.<>) @operation_id::pg_catalog.text
  AND scope OPERATOR(pg_catalog.=) @scope::pg_catalog.text AND key OPERATOR(pg_catalog.=) @key::pg_catalog.text;

-- name: Complete :one
-- Complete records the outcome on the row that this transaction has claimed. It is an upsert because that needs no plan that
-- could be a bad one, and no read that others could conflict with. It divides by zero, so that a COMMIT queued behind it is
-- not reached, if this is not the transaction that claimed (fn ended that and began another one), or if the row is gone or
-- another's: the row that is inserted then has no hash.
INSERT INTO idem.records AS r (scope, key, hash, operation_id, created_at, expires_at, state, status, completed_at, header, body, sealed_by)
VALUES (@scope::pg_catalog.text, @key::pg_catalog.text, ''::pg_catalog.bytea, (@operation_id::pg_catalog.text)::pg_catalog.uuid,
        pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), @state::pg_catalog.text,
        @status::pg_catalog.int4 OPERATOR(pg_catalog./) (CASE
            WHEN pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) @operation_id::pg_catalog.text THEN 1 ELSE 0 END)::pg_catalog.int4,
        pg_catalog.clock_timestamp(),
        (pg_catalog.convert_from(@header::pg_catalog.bytea, 'UTF8'))::pg_catalog.jsonb, @body::pg_catalog.bytea,
        sqlc.narg(sealed_by)::pg_catalog.text)
ON CONFLICT (scope, key) DO UPDATE
SET state = EXCLUDED.state, status = EXCLUDED.status, completed_at = EXCLUDED.completed_at,
    expires_at = EXCLUDED.completed_at OPERATOR(pg_catalog.+) @ttl::pg_catalog.interval,
    header = EXCLUDED.header, body = EXCLUDED.body, sealed_by = EXCLUDED.sealed_by
RETURNING pg_catalog.timestamptz_send(r.completed_at)::pg_catalog.bytea AS completed_at,
          pg_catalog.timestamptz_send(r.expires_at)::pg_catalog.bytea AS expires_at,
          (1 OPERATOR(pg_catalog./) (CASE
            WHEN r.operation_id OPERATOR(pg_catalog.=) (@operation_id::pg_catalog.text)::pg_catalog.uuid
             AND pg_catalog.length(r.hash) OPERATOR(pg_catalog.>) 0 THEN 1 ELSE 0 END)::pg_catalog.int4)::pg_catalog.int4 AS one;

-- name: Holds :one
-- Holds tells whether this transaction is still the one that claimed the key. It is asked when fn fails, where a statement
-- of fn may have ended the transaction and begun another one.
SELECT (coalesce(pg_catalog.current_setting('idem.claim', true), '') OPERATOR(pg_catalog.=) @operation_id::pg_catalog.text)::pg_catalog.bool AS holds;

-- name: Holder :one
-- Holder tells whether a transaction holds the key, and since when. What it has claimed is not visible; the advisory lock
-- of its claim is. since is NULL if this role may not see the sessions of the one that holds it.
SELECT (pg_catalog.count(*) OPERATOR(pg_catalog.>) 0)::pg_catalog.bool AS held,
       pg_catalog.timestamptz_send(pg_catalog.min(activity.xact_start))::pg_catalog.bytea AS since
FROM pg_catalog.pg_locks held
LEFT JOIN pg_catalog.pg_stat_activity activity ON activity.pid OPERATOR(pg_catalog.=) held.pid
WHERE held.locktype OPERATOR(pg_catalog.=) 'advisory' AND held.granted AND held.objsubid OPERATOR(pg_catalog.=) 1
  AND held.classid OPERATOR(pg_catalog.=) (@lock_high::pg_catalog.int8)::pg_catalog.oid
  AND held.objid OPERATOR(pg_catalog.=) (@lock_low::pg_catalog.int8)::pg_catalog.oid
  AND held.database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

-- name: Live :one
-- Live reads all but the response of the live record of a key.
SELECT state, (operation_id::pg_catalog.text)::pg_catalog.text AS operation_id,
       pg_catalog.timestamptz_send(created_at)::pg_catalog.bytea AS created_at,
       pg_catalog.timestamptz_send(completed_at)::pg_catalog.bytea AS completed_at,
       pg_catalog.timestamptz_send(expires_at)::pg_catalog.bytea AS expires_at
FROM idem.records
WHERE scope OPERATOR(pg_catalog.=) @scope::pg_catalog.text AND key OPERATOR(pg_catalog.=) @key::pg_catalog.text
  AND expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
