package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

// errStandby is returned by a command that printed the answer of a standby where only the primary
// knows the answer.
var errStandby = errors.New("what is told of locks, sessions and processes is not so on the primary")

// standbyTimeout is the timeout of the query that detects a standby.
const standbyTimeout = 2 * time.Second

// needsPrimary lists the commands whose answer depends on locks or sessions. The doctor is not
// among them, because it has a check for standbys.
var needsPrimary = map[string]bool{"stuck": true, "explain": true, "stats": true, "outbox stats": true, "operation list": true, "operation show": true}

// besides prints a note if the command has read from a standby. A standby is as old as its replay
// and does not have the locks of the primary. For a command in needsPrimary, besides returns
// errStandby.
func (s *session) besides(err error) error {
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
	say(s.World, "this is a standby (last change: "+age+" ago)")
	return err
}
