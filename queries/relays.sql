-- name: AppearAsRelay :one
-- AppearAsRelay shows that an instance is alive, for as long as this session lives. The session
-- also does the work of the relay. The settings let the server notice soon that a client has
-- vanished without closing the connection, and end the session of a frozen client.
SELECT pg_try_advisory_lock(1768187247, @instance::int4)::bool AS held,
       set_config('tcp_keepalives_idle', '5', false) AS _,
       set_config('tcp_keepalives_interval', '2', false) AS _,
       set_config('tcp_keepalives_count', '3', false) AS _,
       set_config('tcp_user_timeout', '10s', false) AS _,
       set_config('idle_session_timeout', '60s', false) AS _,
       set_config('application_name', 'idem relay', false) AS _;

-- name: SeeLanes :one
-- SeeLanes reports whether no live instance has any of these lanes of a relay. An instance is alive
-- if its lock is held or it has a lease.
SELECT (count(*) = 0)::bool AS free
FROM idem.relays r
WHERE r.relay = @relay AND r.lane = ANY ((@lanes::text)::int4[])
  AND (EXISTS (SELECT 1 FROM idem.leases e
               WHERE e.instance = r.instance AND e.expires_at > clock_timestamp())
       OR NOT pg_try_advisory_xact_lock_shared(1768187247, r.instance));

-- name: TakeLanes :many
-- TakeLanes claims those of the lanes that no other live process has, and returns them.
INSERT INTO idem.relays AS r (relay, lane, instance, since, generation)
SELECT @relay, l.lane, @instance, clock_timestamp(), @generation
FROM (SELECT unnest((@lanes::text)::int4[]) AS lane) l
ORDER BY l.lane
ON CONFLICT (relay, lane) DO UPDATE SET instance = EXCLUDED.instance, since = EXCLUDED.since, generation = EXCLUDED.generation
WHERE r.instance = EXCLUDED.instance
   OR (pg_try_advisory_xact_lock_shared(1768187247, r.instance)
       AND NOT EXISTS (SELECT 1 FROM idem.leases e
                       WHERE e.instance = r.instance AND e.expires_at > clock_timestamp()))
RETURNING r.lane;

-- name: KeepLanes :one
-- KeepLanes fences a transaction. It divides by zero unless the instance has as many lanes as Lanes
-- says, and locks the lanes until the transaction ends. It locks them in the order in which another
-- process claims them.
SELECT (1 / (CASE WHEN count(*) = @lanes::int8 THEN 1 ELSE 0 END)::int4) AS _
FROM (SELECT r.lane FROM idem.relays r WHERE r.instance = @instance ORDER BY r.relay, r.lane FOR SHARE) mine;

-- name: LeaveLanes :exec
-- LeaveLanes releases all lanes of an instance.
DELETE FROM idem.relays r
USING (SELECT o.relay, o.lane FROM idem.relays o WHERE o.instance = @instance ORDER BY o.relay, o.lane FOR UPDATE) mine
WHERE r.relay = mine.relay AND r.lane = mine.lane;

-- name: SeeTopics :one
-- SeeTopics reads the latest generation of the topics of all relays.
SELECT coalesce(max(t.generation), 0)::int8 AS generation FROM idem.relay_topics t;

-- name: ListTopics :many
-- ListTopics lists the topics of each relay that has topics of its own. Fresh reports whether they
-- were recorded in the last 5 seconds.
-- @row RelayTopics
SELECT t.relay, to_jsonb(t.topics)::text AS topics, t.generation,
       (t.since > (clock_timestamp() - '5 seconds'::interval))::bool AS fresh
FROM idem.relay_topics t
ORDER BY t.relay;

-- name: LockTopics :exec
-- LockTopics lets one relay at a time change the recorded topics.
SELECT pg_advisory_xact_lock(1768187247, -1);

-- name: RecordTopics :many
-- RecordTopics records the topics of a relay as the next generation. It records nothing if there is
-- a later generation than Seen.
INSERT INTO idem.relay_topics AS t (relay, topics, generation, since)
SELECT @relay, (@topics::text)::text[], (@seen::int8) + 1, clock_timestamp()
WHERE (SELECT coalesce(max(o.generation), 0) FROM idem.relay_topics o) = @seen
ON CONFLICT (relay) DO UPDATE SET topics = EXCLUDED.topics, generation = EXCLUDED.generation, since = EXCLUDED.since
RETURNING t.generation;

-- name: ForgetTopics :many
-- ForgetTopics deletes the topics of a relay. The row stays, with a new generation and no topics.
UPDATE idem.relay_topics AS t
SET topics = '{}', generation = (SELECT max(o.generation) FROM idem.relay_topics o) + 1, since = clock_timestamp()
WHERE t.relay = @relay
RETURNING t.generation;

-- name: SeeOutdated :one
-- SeeOutdated reports whether no live relay of another name works with topics of a generation
-- before Generation.
SELECT (count(*) = 0)::bool AS none
FROM idem.relays r
WHERE r.relay <> @relay AND r.generation < @generation
  AND (EXISTS (SELECT 1 FROM idem.leases e
               WHERE e.instance = r.instance AND e.expires_at > clock_timestamp())
       OR NOT pg_try_advisory_xact_lock_shared(1768187247, r.instance));
