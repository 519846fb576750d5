package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

// errStandby ends a command that was asked of a standby and has said what is there.
var errStandby = errors.New("what is told of locks, sessions and processes is not so on the primary")

// standbyTimeout bounds the question whether a server is one.
const standbyTimeout = 2 * time.Second

// needsPrimary are the commands whose answer rests on locks or sessions. The doctor has a check for it.
var needsPrimary = map[string]bool{"stuck": true, "explain": true, "stats": true, "outbox stats": true, "operation list": true, "operation show": true}

// besides says that what a command has read is that of a standby: as old as its replay, and without the locks of the primary. A command
// whose answer rests on these has not checked what it was asked.
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
