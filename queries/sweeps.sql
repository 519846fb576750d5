-- name: TakeSweep :one
-- TakeSweep claims the sweep of a table for a run. It resumes the sweep in progress at its
-- position, or begins a new one. No row means that another run is sweeping and was seen within
-- Absence. It also means that no sweep is in progress and the last one began less than Rest ago. A
-- moment in the future does not count, because the clock was set back.
-- @in Sweeper
-- @out Position Position
INSERT INTO idem.sweeps AS s (name, sweeper, seen_at, started_at, total_pages)
VALUES (@name, (@sweeper::text)::uuid,
        clock_timestamp(), clock_timestamp(), @table_pages)
ON CONFLICT (name) DO UPDATE
SET sweeper = EXCLUDED.sweeper, seen_at = EXCLUDED.seen_at, waiting_for = NULL,
    started_at = coalesce(s.started_at, EXCLUDED.started_at),
    total_pages = CASE WHEN s.started_at IS NULL THEN EXCLUDED.total_pages ELSE s.total_pages END
WHERE (s.sweeper IS NULL OR s.sweeper = EXCLUDED.sweeper OR s.seen_at IS NULL
       OR s.seen_at < (clock_timestamp() - @absence::interval)
       OR s.seen_at > (clock_timestamp() + @absence))
  AND (s.started_at IS NOT NULL OR s.last_started_at IS NULL
       OR s.last_started_at <= (clock_timestamp() - @rest::interval)
       OR s.last_started_at > clock_timestamp())
RETURNING s.part, s.block, s.total_pages, s.pages;

-- name: LimitPortion :exec
-- LimitPortion limits how long the transaction of a portion waits for a lock, executes a statement,
-- and is idle. It leaves the planner only scans of the blocks that the statement names.
SELECT set_config('lock_timeout', @lock_limit, true),
       set_config('statement_timeout', @work_limit, true),
       set_config('idle_in_transaction_session_timeout', @idle_limit, true),
       set_config('enable_tidscan', 'on', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_indexscan', 'off', true),
       set_config('enable_indexonlyscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true);

-- name: HurryPortion :exec
-- HurryPortion makes the COMMIT of a portion wait neither for the disk nor for a standby, because a
-- portion need not survive a crash. It is a separate statement because some servers refuse it.
SELECT set_config('synchronous_commit', 'off', true);

-- name: AdvanceSweep :one
-- AdvanceSweep stores the progress of a sweep, in the transaction that deletes a portion. No row
-- means that another run has taken over.
-- @in Sweeper, To Position
UPDATE idem.sweeps AS s
SET part = @part, block = @block,
    pages = s.pages + @walked,
    deleted = s.deleted + @deleted,
    kept = s.kept + @kept,
    skipped = s.skipped + @skipped,
    deleted_total = s.deleted_total + @deleted::int8,
    seen_at = clock_timestamp(), progressed_at = clock_timestamp(), waiting_for = NULL
WHERE s.name = @name::text
  AND s.sweeper = (@sweeper::text)::uuid
RETURNING s.pages, s.total_pages;

-- name: HoldSweep :one
-- HoldSweep stores that the sweep is waiting, and for what. No row means that another run has taken
-- over.
-- @in Sweeper
UPDATE idem.sweeps AS s
SET seen_at = clock_timestamp(), waiting_for = @waiting_for::text
WHERE s.name = @name
  AND s.sweeper = (@sweeper::text)::uuid
RETURNING s.pages;

-- name: FinishSweep :one
-- FinishSweep ends a sweep that has read the whole table. No row means that another run has taken
-- over.
-- @in Sweeper
UPDATE idem.sweeps AS s
SET last_started_at = s.started_at, last_finished_at = clock_timestamp(), last_pages = s.pages,
    last_deleted = s.deleted, last_kept = s.kept, last_skipped = s.skipped,
    part = '', block = 0, sweeper = NULL, seen_at = NULL, waiting_for = NULL, started_at = NULL,
    total_pages = 0, pages = 0, deleted = 0, kept = 0, skipped = 0
WHERE s.name = @name
  AND s.sweeper = (@sweeper::text)::uuid
RETURNING s.last_pages, s.last_deleted;

-- name: LeaveSweep :exec
-- LeaveSweep releases a sweep to the next run, which resumes it at its position.
-- @in Sweeper
UPDATE idem.sweeps AS s
SET sweeper = NULL, seen_at = NULL
WHERE s.name = @name
  AND s.sweeper = (@sweeper::text)::uuid;

-- name: Part :one
-- Part reads the name and the size of the part of a table at which a sweep resumes, or of the next
-- part after it. A table without partitions is its own only part. No row means that no part is
-- left. Part also reads the size of all parts.
WITH leaves AS (
    SELECT c.oid, concat(n.nspname, '.', c.relname) AS name,
           format('%I.%I', n.nspname, c.relname) AS quoted,
           coalesce(pg_relation_size(c.oid::regclass), 0)
           / current_setting('block_size')::int8 AS pages
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r'
      AND (c.oid = to_regclass(@relation)
        OR c.oid = ANY (ARRAY(
            SELECT tree.relid FROM pg_partition_tree(to_regclass(@relation)) tree WHERE tree.isleaf)))
)
SELECT leaves.name::text AS name, leaves.quoted::text AS quoted, leaves.oid::int8 AS oid,
       leaves.pages::int8 AS pages, (SELECT sum(a.pages) FROM leaves a)::int8 AS total_pages
FROM leaves
WHERE leaves.name COLLATE "C" >= @from_part::text
ORDER BY leaves.name COLLATE "C"
LIMIT 1;

-- name: Backlog :one
-- Backlog reads the backlog of standbys and of vacuum. It returns the WAL, in bytes, that the
-- slowest standby has not replayed, and how many standbys this role may not see. It also returns
-- the dead rows of a part that are not vacuumed yet.
SELECT coalesce(slowest.lag, 0)::int8 AS lag, coalesce(slowest.application_name, '')::text AS standby,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication WHERE state IS NULL)::int8 AS hidden,
       coalesce(pg_stat_get_dead_tuples((@oid::int8)::oid), 0)::int8 AS dead
FROM (SELECT 1) one
LEFT JOIN LATERAL (
    SELECT s.application_name, pg_wal_lsn_diff(pg_current_wal_lsn(),
               coalesce(s.replay_lsn, s.flush_lsn, s.write_lsn, s.sent_lsn)) AS lag
    FROM pg_catalog.pg_stat_replication s
    WHERE s.state = ANY ('{streaming,catchup}'::text[])
    ORDER BY 2 DESC NULLS LAST
    LIMIT 1
) slowest ON true;
