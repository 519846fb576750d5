package record

// Remedy returns what to do about a SQLSTATE, or "".
func Remedy(code string) string {
	switch code {
	case "42P01", "3F000", "42703": // undefined_table, invalid_schema_name, undefined_column
		return "the schema of idem is missing or out of date in this database: run idem migrate up, or check the address"
	case "42501": // insufficient_privilege
		return "this role lacks a privilege: see which with idem doctor, or connect as another role with -U; a change also needs INSERT on idem.audit"
	case "57014": // query_canceled
		return "the statement took longer than --timeout: use --scope or another filter, or raise --timeout"
	case "55P03": // lock_not_available
		return "another session holds a lock on it: try again, or see which session with idem stuck"
	case "25006": // read_only_sql_transaction
		return "this is a standby or a read-only connection: connect to the primary"
	case "57P01", "57P02", "57P03": // admin_shutdown, crash_shutdown, cannot_connect_now
		return "the server is starting or stopping: try again"
	}
	return ""
}
