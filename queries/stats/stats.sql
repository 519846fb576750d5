-- No statement here reads a record: the catalog, the planner statistics and the locks are enough. Times are microseconds since
-- 1970, which no setting of the session changes. 0 stands for no time.

-- name: Parts :many
-- Parts returns the size and the statistics of the table of records, a row for each partition if the table is partitioned.
-- bounds is empty if the table was never analyzed or if the role may not read the column.
WITH leaves AS (
    SELECT root.oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid = root.relnamespace
    WHERE n.nspname = 'idem' AND root.relname = 'records'
      AND root.relkind = 'r'
    UNION ALL
    SELECT tree.relid::oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid = root.relnamespace
    CROSS JOIN LATERAL pg_partition_tree(root.oid::regclass) tree
    WHERE n.nspname = 'idem' AND root.relname = 'records'
      AND root.relkind = 'p' AND tree.isleaf
)
SELECT c.reltuples::float8 AS rows_analyzed, c.relpages::int8 AS pages_analyzed,
       coalesce(pg_relation_size(c.oid::regclass), 0)::int8 AS heap_bytes,
       coalesce(pg_indexes_size(c.oid::regclass), 0)::int8 AS index_bytes,
       coalesce(pg_total_relation_size(c.oid::regclass), 0)::int8 AS total_bytes,
       current_setting('block_size')::int8 AS block_bytes,
       coalesce(s.n_live_tup, 0)::int8 AS live_rows, coalesce(s.n_dead_tup, 0)::int8 AS dead_rows,
       coalesce(extract(epoch FROM greatest(s.last_analyze, s.last_autoanalyze)) * 1000000, 0)::int8 AS analyzed_at,
       coalesce(extract(epoch FROM greatest(s.last_vacuum, s.last_autovacuum)) * 1000000, 0)::int8 AS vacuumed_at,
       has_column_privilege(c.oid, 'expires_at', 'SELECT')::bool AS readable,
       coalesce(array_to_json(h.histogram_bounds)::text, '')::text AS bounds,
       coalesce(array_to_json(h.most_common_vals)::text, '')::text AS common,
       coalesce(array_to_json(h.most_common_freqs)::text, '')::text AS frequencies,
       coalesce(extract(epoch FROM clock_timestamp()) * 1000000, 0)::int8 AS at
FROM leaves
JOIN pg_catalog.pg_class c ON c.oid = leaves.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
LEFT JOIN pg_catalog.pg_stats h ON h.schemaname = n.nspname AND h.tablename = c.relname
    AND h.attname = 'expires_at' AND NOT h.inherited;

-- name: Tables :many
-- Tables returns the size and the row counts of the named tables. The partitions of a table are added up.
WITH leaves AS (
    SELECT root.relname, root.oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid = root.relnamespace
    WHERE n.nspname = 'idem' AND root.relkind = 'r'
      AND root.relname = ANY ((@names::text)::text[])
    UNION ALL
    SELECT root.relname, tree.relid::oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid = root.relnamespace
    CROSS JOIN LATERAL pg_partition_tree(root.oid::regclass) tree
    WHERE n.nspname = 'idem' AND root.relkind = 'p' AND tree.isleaf
      AND root.relname = ANY ((@names::text)::text[])
)
SELECT leaves.relname::text AS name,
       coalesce(sum(pg_relation_size(leaves.oid::regclass)), 0)::int8 AS heap_bytes,
       coalesce(sum(pg_indexes_size(leaves.oid::regclass)), 0)::int8 AS index_bytes,
       coalesce(sum(pg_total_relation_size(leaves.oid::regclass)), 0)::int8 AS total_bytes,
       coalesce(sum(s.n_live_tup), 0)::int8 AS live_rows, coalesce(sum(s.n_dead_tup), 0)::int8 AS dead_rows
FROM leaves
LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = leaves.oid
GROUP BY leaves.relname ORDER BY 1;

-- name: InFlight :one
-- InFlight counts the open transactions that have written to the table of records, and the keys that they hold by an advisory
-- lock. hidden counts the transactions whose start time the role may not see.
WITH locks AS MATERIALIZED (
    SELECT l.pid, l.locktype, l.relation, l.objsubid FROM pg_catalog.pg_locks l
    WHERE l.granted AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (l.locktype = 'advisory' OR l.mode = 'RowExclusiveLock')
), holders AS (
    SELECT DISTINCT locks.pid FROM locks
    WHERE locks.relation = (
        SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'idem' AND c.relname = 'records')
)
SELECT count(*)::int8 AS transactions,
       (SELECT count(*) FROM locks JOIN holders ON holders.pid = locks.pid
        WHERE locks.locktype = 'advisory' AND locks.objsubid = 1)::int8 AS keys,
       count(*) FILTER (WHERE a.xact_start IS NULL)::int8 AS hidden,
       coalesce(extract(epoch FROM (clock_timestamp() - min(a.xact_start))) * 1000000, 0)::int8 AS oldest
FROM holders
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = holders.pid;

-- name: Sweeps :many
-- Sweeps returns the progress of the current sweep of each table and the result of the last complete one.
SELECT s.name, coalesce(s.waiting_for, '')::text AS waiting_for,
       coalesce(extract(epoch FROM s.started_at) * 1000000, 0)::int8 AS started_at,
       coalesce(extract(epoch FROM s.seen_at) * 1000000, 0)::int8 AS seen_at,
       coalesce(extract(epoch FROM s.progressed_at) * 1000000, 0)::int8 AS progressed_at,
       s.total_pages, s.pages, s.deleted,
       coalesce(extract(epoch FROM s.last_started_at) * 1000000, 0)::int8 AS last_started_at,
       coalesce(extract(epoch FROM s.last_finished_at) * 1000000, 0)::int8 AS last_finished_at,
       s.last_deleted, s.last_pages, s.deleted_total
FROM idem.sweeps s
ORDER BY s.name;

-- name: TryLock :one
-- TryLock takes an advisory lock until the end of the transaction. locked is false if another transaction holds it.
SELECT pg_try_advisory_xact_lock(@lock::int8)::bool AS locked;

-- name: Operations :one
-- Operations counts the unfinished operations, each state by an index of its own. A running operation that is due is overdue if
-- its owner is gone: no session holds the advisory lock of the owner's number, and the owner has no lease.
SELECT (SELECT count(*) FROM idem.operations o WHERE o.state = 'running')::int8 AS running,
       (SELECT count(*) FROM idem.operations o WHERE o.state = 'parked')::int8 AS parked,
       coalesce(extract(epoch FROM (clock_timestamp() -
            (SELECT min(o.since) FROM idem.operations o WHERE o.state = 'parked'))) * 1000000, 0)::int8 AS parked_for,
       coalesce(extract(epoch FROM (clock_timestamp() -
            (SELECT min(o.wake_at) FROM idem.operations o
             WHERE o.state = 'running' AND o.wake_at <= clock_timestamp()
               AND (o.owner IS NULL OR o.owner <> ALL (ARRAY(
                        SELECT l.objid::int8::int4 FROM pg_catalog.pg_locks l
                        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
                          AND l.classid = (1768187247::int8)::oid
                          AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
                        UNION ALL
                        SELECT e.instance FROM idem.leases e
                        WHERE e.expires_at > clock_timestamp())))))) * 1000000, 0)::int8 AS overdue;

-- name: Messages :one
-- Messages counts the messages that are not published yet, the dead letters of both sides, and the age of the first failure of
-- a message that still fails. Each count stops at max_count. A delayed message counts as waiting once it is due. A dead letter
-- that is being redriven is not counted.
SELECT (SELECT count(*) FROM (SELECT FROM idem.outbox o WHERE o.held = false LIMIT @max_count) w)::int8 AS waiting,
       (SELECT count(*) FROM (SELECT FROM idem.delayed l
            WHERE l.not_before <= (SELECT clock_timestamp()) LIMIT @max_count) w)::int8 AS due,
       (SELECT count(*) FROM (SELECT FROM idem.delayed l
            WHERE l.not_before > (SELECT clock_timestamp()) LIMIT @max_count) w)::int8 AS delayed,
       (SELECT count(*) FROM (SELECT FROM idem.outbox o WHERE o.held = true LIMIT @max_count) w)::int8 AS held,
       coalesce(extract(epoch FROM (clock_timestamp() - least(
            (SELECT l.not_before FROM idem.delayed l ORDER BY l.not_before LIMIT 1),
            (SELECT o.created_at FROM idem.outbox o WHERE o.held = false ORDER BY o.held, o.seq LIMIT 1),
            (SELECT min(h.created_at) FROM (
                SELECT o.created_at FROM idem.outbox o WHERE o.held = true ORDER BY o.held, o.seq LIMIT @max_count) h))))
            * 1000000, 0)::int8 AS oldest,
       (SELECT count(*) FROM (
            SELECT FROM idem.dead_letters d WHERE d.side = 'outbox' AND d.redrive_at IS NULL LIMIT @max_count) w)::int8 AS outbox_dead,
       (SELECT count(*) FROM (
            SELECT FROM idem.dead_letters d WHERE d.side = 'inbox' AND d.redrive_at IS NULL LIMIT @max_count::int4) w)::int8 AS inbox_dead,
       coalesce(extract(epoch FROM (clock_timestamp() -
            (SELECT min(f.since) FROM (
                SELECT m.since FROM idem.inbox m WHERE m.state = 'failing' LIMIT @max_count::int4) f)))
            * 1000000, 0)::int8 AS failing_for;

-- name: Acts :many
-- Acts counts the acts of the last day by kind. It stops after max_count acts.
SELECT a.act, count(*)::int8 AS count
FROM (SELECT u.act FROM idem.audit u
      WHERE u.at > (SELECT clock_timestamp() - '1 day'::interval)
      LIMIT @max_count) a
GROUP BY a.act ORDER BY 1;
