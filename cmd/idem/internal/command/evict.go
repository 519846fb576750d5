package command

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type evictCommand struct {
	recordArgs
	Execution string `required:"" aliases:"operation" placeholder:"ID" help:"Execution id of the record, as idem show prints it. The record of another execution stays."`
	DryRun    bool   `help:"Say what would be done, and do nothing."`
	auditFlags
}

// Run checks the record, asks for confirmation, and deletes the record.
//
// It refuses to delete the record of an operation that has not ended. Without the record, the next
// call with the key would begin a second operation while the first one still runs or is parked. Run
// deletes the record only if the record still has the execution id of --execution.
func (c *evictCommand) Run(s *session) error {
	if err := c.resolve(s); err != nil {
		return err
	}
	found, operation, err := c.find(s)
	switch {
	case err != nil:
		return err
	case found == nil:
		return c.missing()
	case found.ExecutionID != c.Execution:
		return noRecord("nothing was changed: the record of %s belongs to execution %s, which is not that of --execution",
			c.recordArgs.String(), found.ExecutionID)
	}
	if operation != nil && (operation.State == record.Running || operation.State == record.Parked) {
		return unchanged("nothing was changed: the key belongs to operation %s, which has not ended; "+
			"idem operation cancel ends and undoes it", found.ExecutionID)
	}
	abridge(&found.Key, false)
	state := found.State
	if found.Expired {
		state = "expired"
	}
	what := fmt.Sprintf("the %s record of %s, created %s; %s", state, c.recordArgs.String(), page.Relative(found.CreatedAt, found.Now),
		consequence(found))
	return change(s, &batch{DryRun: c.DryRun, auditFlags: c.auditFlags}, []record.Record{*found}, &changeSpec[record.Record]{
		kind: "records", will: "deletes", done: "deleted", table: &recordTable, name: func(*record.Record) string { return what },
		do: func(ctx context.Context, _ *record.Record) error {
			evicted, err := record.Evict(ctx, s.pool, changeTimeout, c.Scope, c.Key, c.Execution)
			if err == nil && !evicted {
				return noRecord("nothing was deleted: the record of %s has changed meanwhile", c.recordArgs.String())
			}
			return err
		},
	})
}

// find returns the record of the key, or nil if there is none. If an operation holds the key, find
// returns the operation too. It uses two statements, so the operation may have ended or may have
// been purged after the record was read.
func (n *recordArgs) find(s *session) (found *record.Record, operation *record.Operation, err error) {
	err = s.inTx(func(ctx context.Context, tx pgx.Tx) (err error) {
		if found, err = record.Find(ctx, tx, n.Scope, n.Key, false); err == nil && found != nil && found.State == record.Running {
			operation, err = record.FindOperation(ctx, tx, found.ExecutionID)
		}
		return err
	})
	return found, operation, err
}

// consequence says what the next call with the key will do if the record is deleted.
func consequence(r *record.Record) string {
	switch {
	case r.Expired:
		return "its key is new already"
	case r.State == record.Processing:
		return "an fn ended its own transaction, so a part of its effect may be committed: the next call executes again"
	case r.State == record.Failed:
		return "it was rejected: the next call executes"
	case r.State == record.Running:
		return "its operation has no row, and its steps may have happened: the next call executes again"
	}
	return "its effect is committed and stays: the next call executes a second time"
}
