package doctor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// sessionChecks look for settings and sessions that make calls wait or fail, or that block vacuum.
var sessionChecks = []check{
	{name: "keepalives", run: keepalives, withoutTable: true},
	{name: "idle-in-transaction", run: idleInTransaction, withoutTable: true},
	{name: "timeouts", run: timeouts, withoutTable: true},
	{name: "isolation", run: isolation, withoutTable: true},
	{name: "xmin-transaction", run: xminTransaction, withoutTable: true},
	{name: "xmin-prepared", run: xminPrepared, withoutTable: true},
	{name: "xmin-slot", run: xminSlot, withoutTable: true},
	{name: "xmin-standby", run: xminStandby, withoutTable: true},
	{name: "locked", run: locked},
	{name: "held-keys", run: heldKeys},
}

// durationOf returns a setting as a duration, or 0 if the setting is off. If the value has no unit,
// it is read in the given unit.
func (e *exam) durationOf(name, unit string) time.Duration {
	value := e.setting(name)
	if value == "" {
		return 0
	}
	var seconds float64
	e.one("SELECT extract(epoch FROM (CASE WHEN $1 ~ '^[0-9.]+$' THEN $1 || $2 ELSE $1 END)::interval)::float8", []any{value, unit}, &seconds)
	return asDuration(seconds)
}

// keepalives looks at how long the server takes to notice that a client's machine has vanished.
// When a process is killed, its machine closes the sockets. A machine that loses power or its
// network cannot, so the transactions of its calls stay open until the server gives up.
func keepalives(e *exam) {
	var overTCP bool
	e.one("SELECT inet_client_addr() IS NOT NULL", nil, &overTCP)
	if !overTCP {
		return // on a Unix socket the server notices at once
	}
	idle := e.durationOf("tcp_keepalives_idle", "s")
	interval := e.durationOf("tcp_keepalives_interval", "s")
	count := e.setting("tcp_keepalives_count")
	times, _ := strconv.Atoi(count)
	// The server probes after the idle time, and gives up after count unanswered probes.
	notice := idle + interval*time.Duration(times)
	if notice > e.opts.Limits.OldTransaction || notice == 0 {
		after := "only when the operating system gives up, usually after hours"
		if notice > 0 {
			after = "after " + page.Age(notice)
		}
		e.warn("the server notices a vanished client "+after+": until then its keys stay in progress and its rows locked",
			"set tcp_keepalives_idle = 60s, tcp_keepalives_interval = 10s, tcp_keepalives_count = 6, and reload; or set them for the role that calls")
	}
	check := e.durationOf("client_connection_check_interval", "ms")
	if check == 0 {
		e.note("client_connection_check_interval is 0: a statement runs to its end after its client is gone", "set it to some seconds")
	}
}

// idleInTransaction looks for an idle_in_transaction_session_timeout that is off or very short.
// This timeout is the only limit for a call whose function hangs while no statement runs.
func idleInTransaction(e *exam) {
	const short = 10 * time.Second
	timeout := e.durationOf("idle_in_transaction_session_timeout", "ms")
	switch {
	case timeout == 0:
		e.warn(fmt.Sprintf("idle_in_transaction_session_timeout is off for the role %s: a caller that hangs inside fn holds its key, its locks and its connection forever", e.role),
			"ALTER ROLE … SET idle_in_transaction_session_timeout = '60s', or longer if an fn needs it")
	case timeout < short:
		e.warn(fmt.Sprintf("idle_in_transaction_session_timeout is %s for the role %s: an fn that takes longer between two statements is rolled back with its session",
			page.Age(timeout), e.role), "raise it above the longest time that an fn takes between two statements")
	}
}

// timeouts looks for timeouts so short that an ordinary wait ends a call. A duplicate call waits
// for a lock until the first call with its key ends, so waits for locks are normal.
func timeouts(e *exam) {
	const short = time.Second
	for _, name := range []string{"statement_timeout", "lock_timeout", "transaction_timeout"} {
		limit := e.durationOf(name, "ms")
		if limit > 0 && limit < short {
			e.warn(fmt.Sprintf("%s is %s for the role %s: an ordinary wait for a lock or for the disk ends the call", name, page.Age(limit), e.role),
				"raise "+name+" to some seconds for the role that calls")
		}
	}
}

// isolation notes a default isolation level other than READ COMMITTED.
func isolation(e *exam) {
	level := e.setting("default_transaction_isolation")
	if level != "read committed" {
		e.note("default_transaction_isolation is "+level+": transactions that conflict run again, up to WithRetries times",
			"nothing to do if you want this; fn must tolerate being run again")
	}
}

// xminTransaction looks for old transactions that delay vacuum. Sessions in other databases do not
// count: vacuum of a table only considers transactions in the same database.
func xminTransaction(e *exam) {
	type transaction struct {
		PID     int32
		Who     string
		Seconds float64
		Age     int64
	}
	old := structs[transaction](e, `
		SELECT pid, format('process %s of the role %s (%s, %s)', pid, usename, nullif(application_name, ''), state),
			extract(epoch FROM clock_timestamp() - xact_start)::float8, greatest(age(backend_xmin), age(backend_xid))::int8
		FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
		  AND xact_start < clock_timestamp() - make_interval(secs => $1)
		ORDER BY xact_start`, e.opts.Limits.OldTransaction.Seconds())
	var pids []int32
	for _, t := range old {
		pids = append(pids, t.PID)
	}
	// A transaction may be old because another session blocks it. The advice is then about the
	// blocker.
	blockers, err := record.Blockers(e.ctx, e.tx, pids)
	for _, t := range old {
		what := fmt.Sprintf("%s has had a transaction open for %s and %s transactions: vacuum cannot remove newer dead rows, and the table grows",
			page.Safe(t.Who), page.Age(asDuration(t.Seconds)), page.Count(t.Age))
		remedy := fmt.Sprintf("find out what it does; SELECT pg_terminate_backend(%d) ends it", t.PID)
		if b := blockers[t.PID]; b != nil {
			what, remedy = what+". It is blocked by "+b.String(), b.Remedy()
		}
		e.warn(what, remedy)
	}
	e.failed(err) // after the findings, because an error would suppress them
	if !e.seesAll {
		e.hidden("the sessions of other roles were not examined")
	}
}

// xminPrepared looks for old prepared transactions. They have no session, survive a restart, and
// are easily forgotten after their coordinator has failed.
func xminPrepared(e *exam) {
	var gid, owner string
	var seconds float64
	e.each(`
		SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
		WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1) ORDER BY prepared`,
		[]any{e.opts.Limits.OldTransaction.Seconds()}, []any{&gid, &owner, &seconds}, func() {
			e.warn(fmt.Sprintf("the prepared transaction %q of the role %s waits for its COMMIT PREPARED for %s: it holds its locks and keys, and vacuum cannot remove newer dead rows",
				gid, owner, page.Age(asDuration(seconds))),
				"ask its coordinator, then COMMIT PREPARED or ROLLBACK PREPARED")
		})
}

// xminSlot looks for replication slots that delay vacuum or retain WAL. Only the xmin of a slot
// delays vacuum of idem's tables. A logical slot has a catalog_xmin, which only concerns catalogs.
func xminSlot(e *exam) {
	var name, wal string
	var active bool
	var age, kept int64
	e.each(`
		SELECT slot_name::text, active, coalesce(age(xmin), 0)::int8,
			coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::int8,
			coalesce(wal_status, '')
		FROM pg_replication_slots ORDER BY 1`, nil, []any{&name, &active, &age, &kept, &wal}, func() {
		remedy := fmt.Sprintf("check its consumer, or SELECT pg_drop_replication_slot('%s')", name)
		switch {
		case wal == "lost" || wal == "unreserved":
			e.warn(fmt.Sprintf("the replication slot %q has lost, or is about to lose, WAL that its consumer needs (%s)", name, wal), remedy)
		case !active && age > 0:
			e.warn(fmt.Sprintf("the replication slot %q has no consumer, and retains %s of WAL and the dead rows of %s transactions",
				name, page.Bytes(kept), page.Count(age)), remedy)
		case !active:
			e.warn(fmt.Sprintf("the replication slot %q has no consumer, and retains %s of WAL", name, page.Bytes(kept)), remedy)
		case age > e.opts.Limits.OldXmin:
			e.warn(fmt.Sprintf("the consumer of the replication slot %q is %s transactions behind: vacuum cannot remove newer dead rows",
				name, page.Count(age)), remedy)
		}
	})
}

// xminStandby looks for standbys that delay vacuum by hot_standby_feedback.
func xminStandby(e *exam) {
	var name string
	var age int64
	e.each(`SELECT application_name, age(backend_xmin)::int8 FROM pg_stat_replication
		WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > $1 ORDER BY 2 DESC`, []any{e.opts.Limits.OldXmin}, []any{&name, &age}, func() {
		e.warn(fmt.Sprintf("the standby %q delays vacuum by hot_standby_feedback, by %s transactions: a long query runs there", name, page.Count(age)),
			"end that query on the standby, or set hot_standby_feedback = off there")
	})
	if !e.seesAll {
		var unseen int
		if e.one("SELECT count(*) FROM pg_stat_replication WHERE sent_lsn IS NULL", nil, &unseen); unseen > 0 {
			e.hidden(fmt.Sprintf("how far standbys delay vacuum was not checked, of %d of them", unseen))
		}
	}
}

// locked looks for table locks that block calls, workers or consumers. It also reports a lock that
// a session is waiting for, because the request blocks all sessions behind it in the queue: an
// ALTER TABLE that waits for one long query stops all calls.
func locked(e *exam) {
	type lock struct {
		Relation uint32
		PID      int32
		Granted  bool
		Mode     string
	}
	locks := structs[lock](e, `
		SELECT l.relation, coalesce(l.pid, 0), l.granted, l.mode
		FROM pg_locks l
		WHERE l.locktype = 'relation' AND l.relation = ANY ($1)
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
		ORDER BY l.granted DESC, l.pid`, e.oids())
	var waiting []int32
	for _, l := range locks {
		if !l.Granted {
			waiting = append(waiting, l.PID)
		}
	}
	blockers, err := record.Blockers(e.ctx, e.tx, waiting)
	e.failed(err)
	for _, l := range locks {
		r := e.relation(l.Relation)
		waits := "all writers of it wait"
		if r.Table == "records" {
			waits = "no call can claim a key until then"
		}
		verb, remedy := "holds", "wait for it to end, or SELECT pg_cancel_backend of that process; set lock_timeout before DDL"
		if !l.Granted {
			verb = "waits for"
		}
		what := fmt.Sprintf("process %d %s %s on %s: %s", l.PID, verb, l.Mode, r.Name, waits)
		if b := blockers[l.PID]; b != nil && !l.Granted {
			what += ". It is blocked by " + b.String()
			remedy = fmt.Sprintf("%s; or SELECT pg_cancel_backend(%d) unblocks the calls; set lock_timeout before DDL", b.Remedy(), l.PID)
		}
		e.problem(what, remedy)
	}
}

// heldKeys looks for old transactions that hold idempotency keys. The connected role may not see
// the age of a transaction of another role. Such transactions are only counted, and reported in one
// finding.
func heldKeys(e *exam) {
	holders, err := record.Holders(e.ctx, e.tx, e.opts.Limits.OldTransaction, maxCounted)
	unseen := 0
	for _, h := range holders {
		if !h.Visible() {
			unseen++
			continue
		}
		what, remedy := fmt.Sprintf("process %d of the role %s (%s) has held keys for %s: callers of those keys get ErrInProgress",
			h.PID, page.Safe(h.Role), h.State, page.Age(h.Since())), "see idem stuck"
		if h.Blocker != nil {
			what, remedy = what+". It is blocked by "+h.Blocker.String(), h.Blocker.Remedy()
		}
		e.warn(what, remedy)
	}
	if unseen > 0 {
		e.hidden(fmt.Sprintf("the age of %d transactions that hold keys was not checked", unseen))
	}
	e.failed(err)
}
