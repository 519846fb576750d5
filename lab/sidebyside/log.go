package sidebyside

import "context"

// Position is how far the server's log is.
func (s *Server) Position(ctx context.Context) (lsn string, err error) {
	err = s.Admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&lsn)
	return lsn, err
}

// Logged counts commits and bytes between two positions of the log. Commits are negative where nobody can read it.
func (s *Server) Logged(ctx context.Context, begin, end string) (commits, bytes float64, err error) {
	if err := s.Admin.QueryRow(ctx, "select pg_wal_lsn_diff($1::text::pg_lsn, $2::text::pg_lsn)::float8", end, begin).Scan(&bytes); err != nil {
		return 0, 0, err
	}
	// It reads what has reached the disk.
	if _, err := s.Admin.Exec(ctx, "insert into flushed values (1)"); err != nil {
		return 0, 0, err
	}
	err = s.Admin.QueryRow(ctx, `select count(*)::float8 from pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn)
		where resource_manager = 'Transaction' and record_type like 'COMMIT%'`, begin, end).Scan(&commits)
	if err != nil {
		return -1, bytes, nil
	}
	return commits, bytes, nil
}
