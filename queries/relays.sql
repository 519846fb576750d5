-- name: AppearAsRelay :one
-- AppearAsRelay shows that an instance is there, for as long as this session is, which works as well. The server is to notice
-- soon if the client is gone without a word, and to end the session of one that is frozen.
SELECT pg_catalog.pg_try_advisory_lock(1768187247, @instance::pg_catalog.int4)::pg_catalog.bool AS held,
       pg_catalog.set_config('tcp_keepalives_idle', '5', false)::pg_catalog.text AS idle,
       pg_catalog.set_config('tcp_keepalives_interval', '2', false)::pg_catalog.text AS pause,
       pg_catalog.set_config('tcp_keepalives_count', '3', false)::pg_catalog.text AS count,
       pg_catalog.set_config('tcp_user_timeout', '10s', false)::pg_catalog.text AS patience,
       pg_catalog.set_config('idle_session_timeout', '60s', false)::pg_catalog.text AS absence,
       pg_catalog.set_config('application_name', 'idem relay', false)::pg_catalog.text AS name;

-- name: SeeLanes :one
-- SeeLanes tells whether nobody who is there has any of these lanes. An instance is there if somebody holds its lock, or it
-- has a lease.
SELECT (pg_catalog.count(*) OPERATOR(pg_catalog.=) 0)::pg_catalog.bool AS free
FROM idem.relays r
WHERE r.lane OPERATOR(pg_catalog.=) ANY ((@lanes::pg_catalog.text)::pg_catalog.int4[])
  AND (EXISTS (SELECT 1 FROM idem.leases e
               WHERE e.instance OPERATOR(pg_catalog.=) r.instance AND e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
       OR NOT pg_catalog.pg_try_advisory_xact_lock_shared(1768187247, r.instance));

-- name: TakeLanes :many
-- TakeLanes takes those of the lanes that nobody has who is there.
INSERT INTO idem.relays AS r (lane, instance, since)
SELECT l.lane, @instance::pg_catalog.int4, pg_catalog.clock_timestamp()
FROM (SELECT pg_catalog.unnest((@lanes::pg_catalog.text)::pg_catalog.int4[]) AS lane) l
ORDER BY l.lane
ON CONFLICT (lane) DO UPDATE SET instance = EXCLUDED.instance, since = EXCLUDED.since
WHERE r.instance OPERATOR(pg_catalog.=) EXCLUDED.instance
   OR (pg_catalog.pg_try_advisory_xact_lock_shared(1768187247, r.instance)
       AND NOT EXISTS (SELECT 1 FROM idem.leases e
                       WHERE e.instance OPERATOR(pg_catalog.=) r.instance AND e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()))
RETURNING r.lane;

-- name: KeepLanes :one
-- KeepLanes fences a transaction: it divides by zero unless the instance has as many lanes as it should, and keeps them until
-- the transaction is over. They are locked in the order in which somebody else takes them.
SELECT (1 OPERATOR(pg_catalog./) (CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) @lanes::pg_catalog.int8 THEN 1 ELSE 0 END)::pg_catalog.int4)::pg_catalog.int4 AS one
FROM (SELECT r.lane FROM idem.relays r WHERE r.instance OPERATOR(pg_catalog.=) @instance::pg_catalog.int4 ORDER BY r.lane FOR SHARE) mine;

-- name: LeaveLanes :exec
-- LeaveLanes lets go of all lanes of an instance.
DELETE FROM idem.relays r
USING (SELECT o.lane FROM idem.relays o WHERE o.instance OPERATOR(pg_catalog.=) @instance::pg_catalog.int4 ORDER BY o.lane FOR UPDATE) mine
WHERE r.lane OPERATOR(pg_catalog.=) mine.lane;
