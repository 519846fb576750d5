package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
)

func pointKinds() []Kind {
	inserted := []string{"INSERT 0 1"}
	committed := []string{"COMMIT"}
	return []Kind{
		{Name: KillAfterClaim, Group: Worker, weight: 4, inject: killAt(pgproxy.AfterAnswer(isClaim, inserted...))},
		{Name: KillInFn, Group: Worker, weight: 4, inject: killAt(pgproxy.AfterAnswer(isOfFn))},
		{Name: KillBeforeCommit, Group: Worker, weight: 4, inject: killAt(pgproxy.Before(pgproxy.IsCommit))},
		{Name: KillDuringCommit, Group: Worker, weight: 4, inject: killAt(pgproxy.AfterForward(pgproxy.IsCommit))},
		{Name: KillAfterCommit, Group: Worker, weight: 4, inject: killAt(pgproxy.AfterAnswer(pgproxy.IsCommit, committed...))},

		{Name: LoseClaimAnswer, Group: Connection, weight: 4, inject: loseAt(pgproxy.AfterAnswer(isClaim, inserted...))},
		{Name: LoseCommit, Group: Connection, weight: 4, inject: loseAt(pgproxy.Before(pgproxy.IsCommit))},
		{Name: LoseCommitRace, Group: Connection, weight: 4, inject: loseAt(pgproxy.AfterForward(pgproxy.IsCommit))},
		{Name: LoseCommitAnswer, Group: Connection, weight: 6, inject: loseAt(pgproxy.AfterAnswer(pgproxy.IsCommit, committed...))},

		{Name: LateCommit, Group: Connection, weight: 2, inject: holdAt(pgproxy.Before(pgproxy.IsCommit))},
		{Name: LateCommitAnswer, Group: Connection, weight: 2, inject: holdAt(pgproxy.AfterAnswer(pgproxy.IsCommit, committed...))},
	}
}

// The faults of operations and of messages are injected only if Mix.Only names them.

func resumptionKinds() []Kind {
	// A claim of operations that finds none answers UPDATE 0. The traps below wait for an answer
	// with at least one row.
	var some []string
	for n := range 9 {
		some = append(some, fmt.Sprint("UPDATE ", n+1))
	}
	return []Kind{
		{Name: KillBeforeTaking, Group: Resumption, weight: 3, inject: killAt(pgproxy.Before(isTaking))},
		{Name: KillAfterTaking, Group: Resumption, weight: 6, inject: killAt(pgproxy.AfterAnswer(isTaking, some...))},
		{Name: LoseTaking, Group: Resumption, weight: 6, inject: loseAt(pgproxy.AfterAnswer(isTaking, some...))},
	}
}

var deliveryKinds = []Kind{
	{Name: KillBeforeDelivery, Group: Delivery, weight: 4, inject: killAt(pgproxy.Before(isDelivery))},
	{Name: KillAfterDelivery, Group: Delivery, weight: 4, inject: killAt(pgproxy.AfterAnswer(isDelivery))},
	{Name: LoseDelivery, Group: Delivery, weight: 6, inject: loseAt(pgproxy.AfterAnswer(isDelivery))},
}

const (
	pointLimit = 2 * time.Second  // how long a fault waits for its point to be reached
	lateLimit  = 10 * time.Second // longer than any stream is frozen
)

// libraryClaims are the names, in queries/, of the statements that claim a key.
var libraryClaims = []string{"Claim", "ClaimAtOnce", "TakeOver"}

// isClaim reports whether s is a statement that claims a key. The statement may find the key taken,
// and then has another command tag.
func isClaim(s pgproxy.Statement) bool { return slices.Contains(libraryClaims, libraryName(s.SQL)) }

// isTaking reports whether s is a statement that claims operations to resume them.
func isTaking(s pgproxy.Statement) bool {
	name := libraryName(s.SQL)
	return name == "TakeOperation" || name == "TakeOperations"
}

// deliveryStatements are the names, in queries/, of the statements of outbox and inbox.
var deliveryStatements = []string{
	"ReadMessages", "ReadHeld", "DeletePublished", "HoldMessages", "BlameMessages", "BuryUnpublished", "TakeLanes",
	"ClaimMessages", "LoadMessages", "KeepMessages", "CountFailure", "BuryMessage", "AnnounceMessage",
}

// isDelivery reports whether s is a statement of outbox or inbox.
func isDelivery(s pgproxy.Statement) bool {
	return slices.Contains(deliveryStatements, libraryName(s.SQL))
}

// libraryName returns the name of a statement in queries/, or "" for a statement that is not part
// of the library. sqlc writes the name in a comment before the statement, and the comment is sent
// to the server in every protocol.
func libraryName(sql string) string {
	named, ok := strings.CutPrefix(strings.TrimSpace(sql), "-- name: ")
	if !ok {
		return ""
	}
	return firstWord(named)
}

// isOfFn reports whether s is a statement of the application: it is not in queries/ and does not
// control the session or the transaction. Besides the statements of fn, these are the statements
// that a caller of DoTx executes before and after it.
func isOfFn(s pgproxy.Statement) bool {
	word := strings.ToLower(firstWord(s.SQL))
	control := []string{"", "begin", "start", "commit", "end", "rollback", "savepoint", "release", "set", "prepare", "deallocate"}
	return libraryName(s.SQL) == "" && !slices.Contains(control, word)
}

func firstWord(sql string) string {
	words := strings.Fields(sql)
	if len(words) == 0 {
		return ""
	}
	return strings.TrimRight(words[0], ";")
}

// killAt returns a fault that freezes a connection at a point, kills the worker, and resets the
// connection. The bytes that were held at the point reach neither side.
func killAt(at pgproxy.Point) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		worker := i.worker()
		conn, err := i.spring(ctx, worker, at, pgproxy.Freeze)
		if err != nil {
			return err
		}
		err = i.kill(worker)
		conn.Cut(pgproxy.Reset)
		return err
	}
}

// loseAt returns a fault that breaks a connection at a point. The worker notices a reset or a
// hangup at once. It notices a black hole when the connection is reset up to 2 s later.
func loseAt(at pgproxy.Point) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		how := choose(i.rng, pgproxy.Reset, pgproxy.Reset, pgproxy.Hangup, pgproxy.BlackHole)
		conn, err := i.spring(ctx, i.worker(), at, how)
		if err != nil {
			return err
		}
		if how == pgproxy.BlackHole {
			sleep(ctx, i.between(50*time.Millisecond, 2*time.Second))
			conn.Cut(pgproxy.Reset)
		}
		return nil
	}
}

// holdAt returns a fault that delays a connection at a point by up to 7 s. Nothing is lost.
func holdAt(at pgproxy.Point) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		conn, err := i.spring(ctx, i.worker(), at, pgproxy.Freeze)
		if err != nil {
			return err
		}
		defer conn.Resume()
		// After a lost COMMIT the library asks for its outcome for 5 s. The longer delays exceed
		// these 5 s.
		sleep(ctx, choose(i.rng, i.between(50*time.Millisecond, time.Second), i.between(time.Second, 7*time.Second)))
		return nil
	}
}

// spring arms a trap and waits until it fires. It returns the connection that the trap caught, or
// errMissed if no connection reached the point within pointLimit.
//
// If a connection reached the point before the trap was disarmed, the proxy still carries out the
// action. The action comes late if the stream is frozen or the machine is busy. spring waits for
// it: otherwise the connection would stay frozen or black-holed after the fault, and keep alive the
// session of a process that is gone.
func (i *injection) spring(ctx context.Context, worker int, at pgproxy.Point, do pgproxy.Action) (*pgproxy.Conn, error) {
	trap := i.Workers.Proxy(worker).Arm(at, do)
	conn := awaitTrap(ctx, trap, pointLimit)
	trap.Disarm()
	for deadline := time.Now().Add(lateLimit); conn == nil && trap.Taken() && time.Now().Before(deadline); {
		conn = awaitTrap(context.WithoutCancel(ctx), trap, 10*time.Millisecond)
	}
	if conn == nil {
		return nil, errMissed
	}
	i.strike()
	return conn, nil
}

// awaitTrap returns the connection that the trap caught, or nil if the trap did not fire in time.
func awaitTrap(ctx context.Context, trap *pgproxy.Trap, limit time.Duration) *pgproxy.Conn {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case e := <-trap.Fired():
		return e.Conn
	case <-ctx.Done():
		return nil
	}
}
