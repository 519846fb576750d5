package outbox

// writers are the transactions that can have a message in a gap which is not committed yet. They are those that hold the lock
// of an INSERT (ROW EXCLUSIVE) on idem.outbox when the gap has been seen. The server makes that exact:
//
//   - Parse analysis, or for a cached plan GetCachedPlan, locks the table of an INSERT before nextval takes the place. A gap is
//     below a message that was seen, so its places were taken before that, and their transactions had the lock by then. The
//     transaction id says less: heap_insert assigns it after the place was taken, and pg_snapshot_xmax is the last completed
//     id plus one, which is below that of many a transaction in progress.
//   - CommitTransaction takes the transaction out of the ProcArray (ProcArrayEndTransaction) before it releases its locks, and
//     so does FinishPreparedTransaction (ProcArrayRemove, and the callbacks after it). A snapshot taken after the lock was seen
//     to be gone therefore shows its rows.
//   - ROLLBACK TO SAVEPOINT releases the lock if it was first taken behind the savepoint. The rows are gone with it.
//   - GetLockStatusData copies the fast-path locks of all backends before the shared table, and a lock moves only from there to
//     here, so none is missed on its way.
//   - PREPARE TRANSACTION moves the lock to another holder within one partition of the shared table, so that it is always in the
//     list. It keeps its name there, but not in releases before October 2021, and not when the server has started again. So one
//     that is newly prepared under a new name may be any that has left the list.
//
// Transactions that never wrote to the outbox do not count, however long they last, in whichever database.
//
// Gaps of one list share one value.
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
