package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

// errStandby ends a command that printed what a standby knows, but whose answer needs the primary.
var errStandby = errors.New("a standby does not have the locks, sessions and processes of the primary")

// standbyTimeout limits the query that asks whether the server is a standby.
const standbyTimeout = 2 * time.Second

// needsPrimary has the commands whose answer depends on locks or sessions, which a standby does not
// have. doctor is not listed, because it has a check for standbys.
var needsPrimary = map[string]bool{"stuck": true, "explain": true, "stats": true, "outbox stats": true, "operation list": true, "operation show": true}

// checkStandby adds a note to the result of a command that read from a standby: its data is as old as
// the last replayed change. If the answer of the command depends on locks or sessions, checkStandby
// returns errStandby.
//
// It runs after the command, so that a command on a primary is not delayed by another query before
// its result. It leaves errors of the command alone. If it cannot find out whether the server is a
// standby, it says nothing.
func (s *session) checkStandby(err error) error {
	if s.pool == nil || err != nil && !errors.Is(err, errFound) && !errors.Is(err, errUnknown) {
		return err
	}
	var standby bool
	var behind float64
	ctx, cancel := context.WithTimeout(s.ctx, standbyTimeout)
	defer cancel()
	read := s.pool.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(),
		coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()), 0)::pg_catalog.float8`)
	if read.Scan(&standby, &behind) != nil || !standby {
		return err
	}
	age := page.Age(time.Duration(behind * float64(time.Second)))
	if err == nil && needsPrimary[s.command] {
		return fmt.Errorf("this is a standby (last change: %s ago), and %w: ask the primary", age, errStandby)
	}
	printError(s.World, "this is a standby (last change: "+age+" ago)")
	return err
}
