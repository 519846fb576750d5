package outbox

// writers are the transactions that can have an uncommitted message in a gap: those that hold the lock of an INSERT (ROW
// EXCLUSIVE) on idem.outbox when the gap is seen. The server makes that exact:
//
//   - An INSERT locks the table before nextval draws the position. A gap is below a message that was seen, so the transactions of
//     its positions have the lock by then. Transaction ids say less: heap_insert assigns them after nextval.
//   - A transaction leaves the ProcArray before it releases its locks, also at COMMIT PREPARED. So a snapshot that is taken
//     after the lock is gone shows its rows. ROLLBACK TO SAVEPOINT may release the lock, and removes the rows.
//   - pg_locks copies fast-path locks before the shared table, and a lock moves only in that direction, so none is missed.
//   - PREPARE TRANSACTION keeps the lock, but not always its name. So a newly prepared transaction of a new name may be any that
//     has left the list.
//
// Transactions that never wrote to the outbox do not count, however long they last. Gaps of one list share one value.
type writers map[string]bool

// over reports whether none is left.
func (w writers) over() bool { return w != nil && len(w) == 0 }

// keep drops the writers that are not listed any more. One of them may go on as one of the newly prepared. To do it twice, for
// two gaps of one list, changes nothing.
func (w writers) keep(listed writers, prepared []string) {
	before := len(w)
	for name := range w {
		if !listed[name] {
			delete(w, name)
		}
	}
	if len(w) == before {
		return
	}
	for _, name := range prepared {
		w[name] = true
	}
}
