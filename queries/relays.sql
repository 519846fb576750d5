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
-- SeeLanes tells whether no instance that is there has any of these lanes of a relay. An instance is there if its lock is held,
-- or it has a lease.
SELECT (pg_catalog.count(*) OPERATOR(pg_catalog.=) 0)::pg_catalog.bool AS free
FROM idem.relays r
WHERE r.relay OPERATOR(pg_catalog.=) @relay::pg_catalog.text AND r.lane OPERATOR(pg_catalog.=) ANY ((@lanes::pg_catalog.text)::pg_catalog.int4[])
  AND (EXISTS (SELECT 1 FROM idem.leases e
               WHERE e.instance OPERATOR(pg_catalog.=) r.instance AND e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
       OR NOT pg_catalog.pg_try_advisory_xact_lock_shared(1768187247, r.instance));

-- name: TakeLanes :many
-- TakeLanes takes those of the lanes that nobody has who is there.
INSERT INTO idem.relays AS r (relay, lane, instance, since, generation)
SELECT @relay::pg_catalog.text, l.lane, @instance::pg_catalog.int4, pg_catalog.clock_timestamp(), @generation::pg_catalog.int8
FROM (SELECT pg_catalog.unnest((@lanes::pg_catalog.text)::pg_catalog.int4[]) AS lane) l
ORDER BY l.lane
ON CONFLICT (relay, lane) DO UPDATE SET instance = EXCLUDED.instance, since = EXCLUDED.since, generation = EXCLUDED.generation
WHERE r.instance OPERATOR(pg_catalog.=) EXCLUDED.instance
   OR (pg_catalog.pg_try_advisory_xact_lock_shared(1768187247, r.instance)
       AND NOT EXISTS (SELECT 1 FROM idem.leases e
                       WHERE e.instance OPERATOR(pg_catalog.=) r.instance AND e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()))
RETURNING r.lane;

-- name: KeepLanes :one
-- KeepLanes fences a transaction: it divides by zero unless the instance has as many lanes as it should, and keeps them until
-- the transaction is over. They are locked in the order in which somebody else takes them.
SELECT (1 OPERATOR(pg_catalog./) (CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) @lanes::pg_catalog.int8 THEN 1 ELSE 0 END)::pg_catalog.int4)::pg_catalog.int4 AS one
FROM (SELECT r.lane FROM idem.relays r WHERE r.instance OPERATOR(pg_catalog.=) @instance::pg_catalog.int4 ORDER BY r.relay, r.lane FOR SHARE) mine;

-- name: LeaveLanes :exec
-- LeaveLanes lets go of all lanes of an instance.
DELETE FROM idem.relays r
USING (SELECT o.relay, o.lane FROM idem.relays o WHERE o.instance OPERATOR(pg_catalog.=) @instance::pg_catalog.int4 ORDER BY o.relay, o.lane FOR UPDATE) mine
WHERE r.relay OPERATOR(pg_catalog.=) mine.relay AND r.lane OPERATOR(pg_catalog.=) mine.lane;

-- name: SeeTopics :one
-- SeeTopics tells of which generation the topics of all relays are.
SELECT coalesce(pg_catalog.max(t.generation), 0)::pg_catalog.int8 AS generation FROM idem.relay_topics t;

-- name: ListTopics :many
-- ListTopics tells the topics of each relay that has some of its own, and whether they were recorded just now.
SELECT t.relay, pg_catalog.to_jsonb(t.topics)::pg_catalog.text AS topics, t.generation,
       (t.since OPERATOR(pg_catalog.>) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval))::pg_catalog.bool AS fresh
FROM idem.relay_topics t
ORDER BY t.relay;

-- name: LockTopics :exec
-- LockTopics lets one relay at a time change what is on record.
SELECT pg_catalog.pg_advisory_xact_lock(1768187247, -1);

-- name: RecordTopics :many
-- RecordTopics records the topics of a relay as those of the next generation, if nothing has changed since the generation that it has seen.
INSERT INTO idem.relay_topics AS t (relay, topics, generation, since)
SELECT @relay::pg_catalog.text, (@topics::pg_catalog.text)::pg_catalog.text[], @seen::pg_catalog.int8 OPERATOR(pg_catalog.+) 1, pg_catalog.clock_timestamp()
WHERE (SELECT coalesce(pg_catalog.max(o.generation), 0) FROM idem.relay_topics o) OPERATOR(pg_catalog.=) @seen::pg_catalog.int8
ON CONFLICT (relay) DO UPDATE SET topics = EXCLUDED.topics, generation = EXCLUDED.generation, since = EXCLUDED.since
RETURNING t.generation;

-- name: ForgetTopics :many
-- ForgetTopics removes a relay from the record. Its generation stays, with a relay that has no topics.
UPDATE idem.relay_topics AS t
SET topics = '{}', generation = (SELECT pg_catalog.max(o.generation) FROM idem.relay_topics o) OPERATOR(pg_catalog.+) 1, since = pg_catalog.clock_timestamp()
WHERE t.relay OPERATOR(pg_catalog.=) @relay::pg_catalog.text
RETURNING t.generation;

-- name: SeeOutdated :one
-- SeeOutdated tells whether no relay of another name, which is there, works by topics of before a generation.
SELECT (pg_catalog.count(*) OPERATOR(pg_catalog.=) 0)::pg_catalog.bool AS none
FROM idem.relays r
WHERE r.relay OPERATOR(pg_catalog.<>) @relay::pg_catalog.text AND r.generation OPERATOR(pg_catalog.<) @generation::pg_catalog.int8
  AND (EXISTS (SELECT 1 FROM idem.leases e
               WHERE e.instance OPERATOR(pg_catalog.=) r.instance AND e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
       OR NOT pg_catalog.pg_try_advisory_xact_lock_shared(1768187247, r.instance));
