-- What is asked here reads no record: the catalog, the statistics and the locks are enough. Every moment is given in
-- microseconds since 1970, which no setting of the session changes, and 0 stands for none.

-- name: Parts :many
-- Parts tells the size of the table of records, and what statistics say of it: of each of its partitions, if it has any. The
-- bounds are empty if the table was never analyzed, or if this role may not read the column.
WITH leaves AS (
    SELECT root.oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) root.relnamespace
    WHERE n.nspname OPERATOR(pg_catalog.=) 'idem' AND root.relname OPERATOR(pg_catalog.=) 'records'
      AND root.relkind OPERATOR(pg_catalog.=) 'r'
    UNION ALL
    SELECT tree.relid::pg_catalog.oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) root.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(root.oid::pg_catalog.regclass) tree
    WHERE n.nspname OPERATOR(pg_catalog.=) 'idem' AND root.relname OPERATOR(pg_catalog.=) 'records'
      AND root.relkind OPERATOR(pg_catalog.=) 'p' AND tree.isleaf
)
SELECT c.reltuples::pg_catalog.float8 AS rows_analyzed, c.relpages::pg_catalog.int8 AS pages_analyzed,
       coalesce(pg_catalog.pg_relation_size(c.oid::pg_catalog.regclass), 0)::pg_catalog.int8 AS heap_bytes,
       coalesce(pg_catalog.pg_indexes_size(c.oid::pg_catalog.regclass), 0)::pg_catalog.int8 AS index_bytes,
       coalesce(pg_catalog.pg_total_relation_size(c.oid::pg_catalog.regclass), 0)::pg_catalog.int8 AS total_bytes,
       pg_catalog.current_setting('block_size')::pg_catalog.int8 AS block_bytes,
       coalesce(s.n_live_tup, 0)::pg_catalog.int8 AS live_rows, coalesce(s.n_dead_tup, 0)::pg_catalog.int8 AS dead_rows,
       coalesce(extract(epoch FROM greatest(s.last_analyze, s.last_autoanalyze)) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS analyzed_at,
       coalesce(extract(epoch FROM greatest(s.last_vacuum, s.last_autovacuum)) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS vacuumed_at,
       pg_catalog.has_column_privilege(c.oid, 'expires_at', 'SELECT')::pg_catalog.bool AS readable,
       coalesce(pg_catalog.array_to_json(h.histogram_bounds)::pg_catalog.text, '')::pg_catalog.text AS bounds,
       coalesce(pg_catalog.array_to_json(h.most_common_vals)::pg_catalog.text, '')::pg_catalog.text AS common,
       coalesce(pg_catalog.array_to_json(h.most_common_freqs)::pg_catalog.text, '')::pg_catalog.text AS frequencies,
       coalesce(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS at
FROM leaves
JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) leaves.oid
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid OPERATOR(pg_catalog.=) c.oid
LEFT JOIN pg_catalog.pg_stats h ON h.schemaname OPERATOR(pg_catalog.=) n.nspname AND h.tablename OPERATOR(pg_catalog.=) c.relname
    AND h.attname OPERATOR(pg_catalog.=) 'expires_at' AND NOT h.inherited;

-- name: Tables :many
-- Tables tells the size of each of these tables, all its partitions together, and what statistics say of its rows.
WITH leaves AS (
    SELECT root.relname, root.oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) root.relnamespace
    WHERE n.nspname OPERATOR(pg_catalog.=) 'idem' AND root.relkind OPERATOR(pg_catalog.=) 'r'
      AND root.relname OPERATOR(pg_catalog.=) ANY ((@names::pg_catalog.text)::pg_catalog.text[])
    UNION ALL
    SELECT root.relname, tree.relid::pg_catalog.oid FROM pg_catalog.pg_class root
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) root.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(root.oid::pg_catalog.regclass) tree
    WHERE n.nspname OPERATOR(pg_catalog.=) 'idem' AND root.relkind OPERATOR(pg_catalog.=) 'p' AND tree.isleaf
      AND root.relname OPERATOR(pg_catalog.=) ANY ((@names::pg_catalog.text)::pg_catalog.text[])
)
SELECT leaves.relname::pg_catalog.text AS name,
       coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(leaves.oid::pg_catalog.regclass)), 0)::pg_catalog.int8 AS heap_bytes,
       coalesce(pg_catalog.sum(pg_catalog.pg_indexes_size(leaves.oid::pg_catalog.regclass)), 0)::pg_catalog.int8 AS index_bytes,
       coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(leaves.oid::pg_catalog.regclass)), 0)::pg_catalog.int8 AS total_bytes,
       coalesce(pg_catalog.sum(s.n_live_tup), 0)::pg_catalog.int8 AS live_rows, coalesce(pg_catalog.sum(s.n_dead_tup), 0)::pg_catalog.int8 AS dead_rows
FROM leaves
LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid OPERATOR(pg_catalog.=) leaves.oid
GROUP BY leaves.relname ORDER BY 1;

-- name: InFlight :one
-- InFlight counts the transactions that have written to the table of records and are not over, and the keys that they hold by
-- an advisory lock. Whose they are may be hidden from this role; that they are there is not.
WITH locks AS MATERIALIZED (
    SELECT l.pid, l.locktype, l.relation, l.objsubid FROM pg_catalog.pg_locks l
    WHERE l.granted AND l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
      AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
      AND (l.locktype OPERATOR(pg_catalog.=) 'advisory' OR l.mode OPERATOR(pg_catalog.=) 'RowExclusiveLock')
), holders AS (
    SELECT DISTINCT locks.pid FROM locks
    WHERE locks.relation OPERATOR(pg_catalog.=) (
        SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) 'idem' AND c.relname OPERATOR(pg_catalog.=) 'records')
)
SELECT pg_catalog.count(*)::pg_catalog.int8 AS transactions,
       (SELECT pg_catalog.count(*) FROM locks JOIN holders ON holders.pid OPERATOR(pg_catalog.=) locks.pid
        WHERE locks.locktype OPERATOR(pg_catalog.=) 'advisory' AND locks.objsubid OPERATOR(pg_catalog.=) 1)::pg_catalog.int8 AS keys,
       pg_catalog.count(*) FILTER (WHERE a.xact_start IS NULL)::pg_catalog.int8 AS hidden,
       coalesce(extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.min(a.xact_start))) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS oldest
FROM holders
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) holders.pid;

-- name: Sweeps :many
-- Sweeps tells how far each table is swept, and what the last whole sweep did.
SELECT s.name, coalesce(s.waiting_for, '')::pg_catalog.text AS waiting_for,
       coalesce(extract(epoch FROM s.started_at) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS started_at,
       coalesce(extract(epoch FROM s.seen_at) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS seen_at,
       coalesce(extract(epoch FROM s.progressed_at) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS progressed_at,
       s.total_pages, s.pages, s.deleted,
       coalesce(extract(epoch FROM s.last_started_at) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS last_started_at,
       coalesce(extract(epoch FROM s.last_finished_at) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS last_finished_at,
       s.last_deleted, s.last_pages, s.deleted_total
FROM idem.sweeps s
ORDER BY s.name;

-- name: TryTurn :one
-- TryTurn makes this transaction the one that reads for everybody, unless another one is at it.
SELECT pg_catalog.pg_try_advisory_xact_lock(@lock::pg_catalog.int8)::pg_catalog.bool AS mine;

-- name: Operations :one
-- Operations counts the operations that are not over, each by an index of its own. One that runs and is due is late if no
-- process that is there has it: none holds the advisory lock of its owner's number, or has a lease for it.
SELECT (SELECT pg_catalog.count(*) FROM idem.operations o WHERE o.state OPERATOR(pg_catalog.=) 'running')::pg_catalog.int8 AS running,
       (SELECT pg_catalog.count(*) FROM idem.operations o WHERE o.state OPERATOR(pg_catalog.=) 'parked')::pg_catalog.int8 AS parked,
       coalesce(extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
            (SELECT pg_catalog.min(o.since) FROM idem.operations o WHERE o.state OPERATOR(pg_catalog.=) 'parked'))) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS parked_for,
       coalesce(extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
            (SELECT pg_catalog.min(o.wake_at) FROM idem.operations o
             WHERE o.state OPERATOR(pg_catalog.=) 'running' AND o.wake_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
               AND (o.owner IS NULL OR o.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(
                        SELECT l.objid::pg_catalog.int8::pg_catalog.int4 FROM pg_catalog.pg_locks l
                        WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 2
                          AND l.classid OPERATOR(pg_catalog.=) (1768187247::pg_catalog.int8)::pg_catalog.oid
                          AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
                        UNION ALL
                        SELECT e.instance FROM idem.leases e
                        WHERE e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())))))) OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS late;

-- name: Messages :one
-- Messages tells how far the outbox is behind, what is dead on either side, and for how long a consumer has tried a message in
-- vain. It counts up to a limit, and reads neither what was published nor what was handled. What is delayed waits from when it is due. A dead letter that is to be tried
-- again waits for nobody.
SELECT (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.outbox o WHERE o.held OPERATOR(pg_catalog.=) false LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS waiting,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.delayed l
            WHERE l.not_before OPERATOR(pg_catalog.<=) (SELECT pg_catalog.clock_timestamp()) LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS due,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.delayed l
            WHERE l.not_before OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp()) LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS delayed,
       (SELECT pg_catalog.count(*) FROM (SELECT FROM idem.outbox o WHERE o.held OPERATOR(pg_catalog.=) true LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS held,
       coalesce(extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) least(
            (SELECT l.not_before FROM idem.delayed l ORDER BY l.not_before LIMIT 1),
            (SELECT o.created_at FROM idem.outbox o WHERE o.held OPERATOR(pg_catalog.=) false ORDER BY o.held, o.seq LIMIT 1),
            (SELECT pg_catalog.min(h.created_at) FROM (
                SELECT o.created_at FROM idem.outbox o WHERE o.held OPERATOR(pg_catalog.=) true ORDER BY o.held, o.seq LIMIT @most::pg_catalog.int4) h))))
            OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS oldest,
       (SELECT pg_catalog.count(*) FROM (
            SELECT FROM idem.dead_letters d WHERE d.side OPERATOR(pg_catalog.=) 'outbox' AND d.redrive_at IS NULL LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS unpublished,
       (SELECT pg_catalog.count(*) FROM (
            SELECT FROM idem.dead_letters d WHERE d.side OPERATOR(pg_catalog.=) 'inbox' AND d.redrive_at IS NULL LIMIT @most::pg_catalog.int4) w)::pg_catalog.int8 AS unhandled,
       coalesce(extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
            (SELECT pg_catalog.min(f.since) FROM (
                SELECT m.since FROM idem.inbox m WHERE m.state OPERATOR(pg_catalog.=) 'failing' LIMIT @most::pg_catalog.int4) f)))
            OPERATOR(pg_catalog.*) 1000000, 0)::pg_catalog.int8 AS failing_for;

-- name: Acts :many
-- Acts counts what people did in the last day, up to a limit.
SELECT a.act, pg_catalog.count(*)::pg_catalog.int8 AS times
FROM (SELECT u.act FROM idem.audit u
      WHERE u.at OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '1 day'::pg_catalog.interval)
      LIMIT @most::pg_catalog.int4) a
GROUP BY a.act ORDER BY 1;
