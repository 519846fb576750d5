-- name: TakeSweep :one
-- TakeSweep makes a run the sweeper of a table: of the sweep that is under way, or of a new one. No row: another run is at it,
-- and has not been silent for as long as absence; or none is under way, and the last one began less than rest ago. A moment
-- that is yet to come is none: the clock was set back. Whoever takes over a sweep goes on where it was.
INSERT INTO idem.sweeps AS s (name, sweeper, seen_at, started_at, total_pages)
VALUES (@name::pg_catalog.text, (@sweeper::pg_catalog.text)::pg_catalog.uuid,
        pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), @total_pages::pg_catalog.int8)
ON CONFLICT (name) DO UPDATE
SET sweeper = EXCLUDED.sweeper, seen_at = EXCLUDED.seen_at, waiting_for = NULL,
    started_at = coalesce(s.started_at, EXCLUDED.started_at),
    total_pages = CASE WHEN s.started_at IS NULL THEN EXCLUDED.total_pages ELSE s.total_pages END
WHERE (s.sweeper IS NULL OR s.sweeper OPERATOR(pg_catalog.=) EXCLUDED.sweeper OR s.seen_at IS NULL
       OR s.seen_at OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) @absence::pg_catalog.interval)
       OR s.seen_at OPERATOR(pg_catalog.>) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) @absence::pg_catalog.interval))
  AND (s.started_at IS NOT NULL OR s.last_started_at IS NULL
       OR s.last_started_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) @rest::pg_catalog.interval)
       OR s.last_started_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
RETURNING s.part, s.block, s.total_pages, s.pages;

-- name: LimitPortion :exec
-- LimitPortion bounds what a portion may do to others: how long it waits for a lock, works, and lets its client be silent. It
-- need not survive a crash, so its COMMIT waits neither for the disk nor for a standby. Only a scan of the blocks that are
-- named is left to the planner.
SELECT pg_catalog.set_config('lock_timeout', @lock_limit::pg_catalog.text, true),
       pg_catalog.set_config('statement_timeout', @work_limit::pg_catalog.text, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', @idle_limit::pg_catalog.text, true),
       pg_catalog.set_config('synchronous_commit', 'off', true),
       pg_catalog.set_config('enable_tidscan', 'on', true),
       pg_catalog.set_config('enable_seqscan', 'off', true),
       pg_catalog.set_config('enable_indexscan', 'off', true),
       pg_catalog.set_config('enable_indexonlyscan', 'off', true),
       pg_catalog.set_config('enable_bitmapscan', 'off', true),
       pg_catalog.set_config('jit', 'off', true);

-- name: AdvanceSweep :one
-- AdvanceSweep notes a portion, in the transaction that has deleted it. No row: another run has taken over.
UPDATE idem.sweeps AS s
SET part = @part::pg_catalog.text, block = @block::pg_catalog.int8,
    pages = s.pages OPERATOR(pg_catalog.+) @pages::pg_catalog.int8,
    deleted = s.deleted OPERATOR(pg_catalog.+) @deleted::pg_catalog.int8,
    kept = s.kept OPERATOR(pg_catalog.+) @kept::pg_catalog.int8,
    skipped = s.skipped OPERATOR(pg_catalog.+) @skipped::pg_catalog.int8,
    deleted_total = s.deleted_total OPERATOR(pg_catalog.+) @deleted::pg_catalog.int8,
    seen_at = pg_catalog.clock_timestamp(), progressed_at = pg_catalog.clock_timestamp(), waiting_for = NULL
WHERE s.name OPERATOR(pg_catalog.=) @name::pg_catalog.text
  AND s.sweeper OPERATOR(pg_catalog.=) (@sweeper::pg_catalog.text)::pg_catalog.uuid
RETURNING s.pages, s.total_pages;

-- name: HoldSweep :one
-- HoldSweep says that the sweep waits, and for what. No row: another run has taken over.
UPDATE idem.sweeps AS s
SET seen_at = pg_catalog.clock_timestamp(), waiting_for = @waiting_for::pg_catalog.text
WHERE s.name OPERATOR(pg_catalog.=) @name::pg_catalog.text
  AND s.sweeper OPERATOR(pg_catalog.=) (@sweeper::pg_catalog.text)::pg_catalog.uuid
RETURNING s.pages;

-- name: FinishSweep :one
-- FinishSweep ends a sweep that has walked the whole table. No row: another run has taken over.
UPDATE idem.sweeps AS s
SET last_started_at = s.started_at, last_finished_at = pg_catalog.clock_timestamp(), last_pages = s.pages,
    last_deleted = s.deleted, last_kept = s.kept, last_skipped = s.skipped,
    part = '', block = 0, sweeper = NULL, seen_at = NULL, waiting_for = NULL, started_at = NULL,
    total_pages = 0, pages = 0, deleted = 0, kept = 0, skipped = 0
WHERE s.name OPERATOR(pg_catalog.=) @name::pg_catalog.text
  AND s.sweeper OPERATOR(pg_catalog.=) (@sweeper::pg_catalog.text)::pg_catalog.uuid
RETURNING s.last_pages, s.last_deleted;

-- name: LeaveSweep :exec
-- LeaveSweep leaves a sweep to the next run, where it is.
UPDATE idem.sweeps AS s
SET sweeper = NULL, seen_at = NULL
WHERE s.name OPERATOR(pg_catalog.=) @name::pg_catalog.text
  AND s.sweeper OPERATOR(pg_catalog.=) (@sweeper::pg_catalog.text)::pg_catalog.uuid;

-- name: Part :one
-- Part names the part of a table at which a sweep goes on, or the first one after it, with its size: a table that is not
-- partitioned is its own only part. No row: there is none left. It also tells the size of all parts.
WITH leaves AS (
    SELECT c.oid, pg_catalog.concat(n.nspname, '.', c.relname) AS name,
           pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted,
           coalesce(pg_catalog.pg_relation_size(c.oid::pg_catalog.regclass), 0)
           OPERATOR(pg_catalog./) pg_catalog.current_setting('block_size')::pg_catalog.int8 AS pages
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relkind OPERATOR(pg_catalog.=) 'r'
      AND (c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(@relation::pg_catalog.text)
        OR c.oid OPERATOR(pg_catalog.=) ANY (ARRAY(
            SELECT tree.relid FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass(@relation::pg_catalog.text)) tree WHERE tree.isleaf)))
)
SELECT leaves.name::pg_catalog.text AS name, leaves.quoted::pg_catalog.text AS quoted, leaves.oid::pg_catalog.int8 AS relation,
       leaves.pages::pg_catalog.int8 AS pages, (SELECT pg_catalog.sum(a.pages) FROM leaves a)::pg_catalog.int8 AS total_pages
FROM leaves
WHERE leaves.name COLLATE "C" OPERATOR(pg_catalog.>=) @part::pg_catalog.text
ORDER BY leaves.name COLLATE "C"
LIMIT 1;

-- name: Backlog :one
-- Backlog tells what standbys and vacuum have yet to do: the WAL that the slowest standby has not replayed, in bytes, and how
-- many standbys this role may not see; and the rows of a part that are dead and not yet vacuumed.
SELECT coalesce(slowest.lag, 0)::pg_catalog.int8 AS lag, coalesce(slowest.application_name, '')::pg_catalog.text AS standby,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication WHERE state IS NULL)::pg_catalog.int8 AS hidden,
       coalesce(pg_catalog.pg_stat_get_dead_tuples((@oid::pg_catalog.int8)::pg_catalog.oid), 0)::pg_catalog.int8 AS dead
FROM (SELECT 1) one
LEFT JOIN LATERAL (
    SELECT s.application_name, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(),
               coalesce(s.replay_lsn, s.flush_lsn, s.write_lsn, s.sent_lsn)) AS lag
    FROM pg_catalog.pg_stat_replication s
    WHERE s.state OPERATOR(pg_catalog.=) ANY ('{streaming,catchup}'::pg_catalog.text[])
    ORDER BY 2 DESC NULLS LAST
    LIMIT 1
) slowest ON true;
