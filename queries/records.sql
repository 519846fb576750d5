-- name: Claim :execrows
-- Claim takes the key for this transaction, or touches nothing: no row where a live record exists (that is a replay, and
-- stays read-only) and none where another transaction holds the key. The advisory lock is only what makes a busy key
-- answer at once; that a key is claimed once rests on the primary key. An expired record is taken over in place, unless
-- it is our own: then the call is asking what became of a COMMIT, and the record is the answer however old it is.
-- CASE fixes the order: a lock must not be taken for a replay.
INSERT INTO idem.records AS r (scope, key, hash, operation_id, created_at, expires_at, state)
SELECT @scope::text, @key::text, @hash::bytea, @operation_id::uuid,
       clock_timestamp(), clock_timestamp() + sqlc.arg(keep_us)::bigint * interval '1 microsecond', 'processing'::idem.record_state
WHERE CASE
    WHEN EXISTS (SELECT FROM idem.records live
                 WHERE live.scope = @scope::text AND live.key = @key::text
                   AND (live.expires_at > clock_timestamp() OR live.operation_id = @operation_id::uuid)) THEN false
    ELSE pg_try_advisory_xact_lock(hashtextextended(@key::text, hashtextextended(@scope::text, 0)))
END
ON CONFLICT (scope, key) DO UPDATE
SET hash = EXCLUDED.hash, operation_id = EXCLUDED.operation_id,
    created_at = EXCLUDED.created_at, expires_at = EXCLUDED.expires_at, state = EXCLUDED.state,
    status = NULL, completed_at = NULL, header = NULL, body = NULL
WHERE r.expires_at <= clock_timestamp() AND r.operation_id <> EXCLUDED.operation_id;

-- name: Load :one
-- Load reads the live record of the key, or our own in any case. It is a statement of its own because the
-- snapshot of the claim may be older than the commit of whoever won the key. Of a record with another hash no part of the response is read.
SELECT (hash = @hash::bytea)::boolean AS same_hash, operation_id, state,
       coalesce(CASE WHEN hash = @hash::bytea THEN status END, 0)::integer AS status,
       (CASE WHEN hash = @hash::bytea THEN header END)::jsonb AS header,
       (CASE WHEN hash = @hash::bytea THEN body END)::bytea AS body,
       created_at, completed_at, expires_at,
       clock_timestamp()::timestamptz AS loaded_at
FROM idem.records
WHERE scope = @scope::text AND key = @key::text
  AND (expires_at > clock_timestamp() OR operation_id = @operation_id::uuid);

-- name: Complete :one
-- Complete records the outcome on the row that this transaction claimed. If that row is gone, or was claimed by another
-- transaction (fn ended ours and began a new one), it divides by zero, so that a COMMIT queued behind it is not reached.
-- A joined transaction is not the one that claimed when the caller uses savepoints; there, releasing the savepoint is
-- the proof. The expiry moves only if fn took so long that less than the TTL would be left after the commit.
WITH done AS (
    UPDATE idem.records r
    SET state = @state::idem.record_state, status = @status::integer, completed_at = clock_timestamp(),
        header = @header::jsonb, body = @body::bytea,
        expires_at = CASE WHEN r.expires_at < clock_timestamp() + sqlc.arg(ttl_us)::bigint * interval '1 microsecond'
                          THEN clock_timestamp() + sqlc.arg(keep_us)::bigint * interval '1 microsecond'
                          ELSE r.expires_at END
    WHERE r.scope = @scope::text AND r.key = @key::text AND r.operation_id = @operation_id::uuid
      AND r.state = 'processing' AND (@joined::boolean OR r.xmin = pg_current_xact_id()::xid)
    RETURNING r.completed_at, r.expires_at
)
SELECT max(completed_at)::timestamptz AS completed_at, max(expires_at)::timestamptz AS expires_at, 1 / count(*) AS one
FROM done;

-- name: Holds :one
-- Holds tells whether this transaction is still the one that claimed the key. It is asked when fn fails, where a statement
-- of fn may have ended the transaction and begun another one.
SELECT EXISTS (
    SELECT FROM idem.records
    WHERE scope = @scope::text AND key = @key::text AND operation_id = @operation_id::uuid
      AND state = 'processing' AND xmin = pg_current_xact_id_if_assigned()::xid
) AS holds;

-- name: Holder :one
-- Holder tells whether a transaction holds the key, and since when. What it has claimed is not visible; the advisory lock
-- of its claim is. since is NULL if this role may not see the sessions of the one that holds it.
SELECT count(*) > 0 AS held, min(activity.xact_start)::timestamptz AS since
FROM (SELECT hashtextextended(@key::text, hashtextextended(@scope::text, 0)) AS id) AS wanted
JOIN pg_catalog.pg_locks held ON held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
    AND held.classid = ((wanted.id >> 32) & 4294967295)::oid AND held.objid = (wanted.id & 4294967295)::oid
    AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
LEFT JOIN pg_catalog.pg_stat_activity activity ON activity.pid = held.pid;

-- name: Live :one
-- Live reads all but the response of the live record of a key.
SELECT state, operation_id, created_at, completed_at, expires_at
FROM idem.records
WHERE scope = @scope::text AND key = @key::text AND expires_at > clock_timestamp();
