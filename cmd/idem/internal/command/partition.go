package command

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/partition"
)

type partitionCommand struct {
	Table    string  `arg:"" enum:"records,inbox" help:"The table: records or inbox."`
	Parts    int     `default:"16" placeholder:"N" help:"Number of partitions, by a hash of the primary key. Default: ${default}."`
	Share    float64 `default:"0.5" placeholder:"PART" help:"Share of the time in which it works, up to 1. Default: ${default}."`
	Patience span    `default:"10m" placeholder:"SPAN" help:"Maximum wait for a moment without a transaction that writes to the table. Default: ${default}."`
	Abort    bool    `help:"Undo an interrupted run, and do not resume it."`
	owner
	confirmFlag
}

// Run partitions the table. With --abort it removes what an interrupted run left in the database.
func (c *partitionCommand) Run(s *session) error {
	if c.Share <= 0 || c.Share > 1 {
		return usage("--share must be above 0 and at most 1")
	}
	owned, err := c.config(s)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(s.ctx, owned)
	if err != nil {
		return err
	}
	defer pool.Close()
	config := partition.Config{
		Table: c.Table, Parts: c.Parts, Share: c.Share, Patience: time.Duration(c.Patience),
		Progress: func(p partition.Progress) { s.progress("%s", describePartition(c.Table, p)) },
	}
	if c.Abort {
		return c.abort(s, pool, config)
	}
	if err := c.ask(s, fmt.Sprintf("copies idem.%s into a table with %d partitions while it is in use, and drops the old one", c.Table, c.Parts)); err != nil {
		return err
	}
	report, err := partition.Run(s.ctx, pool, config)
	s.progress("")
	var refused *partition.RefusedError
	switch {
	case errors.As(err, &refused):
		return unchanged("nothing was changed: %v", refused)
	case err != nil:
		return fmt.Errorf("%w; run it again to continue, or idem partition --abort %s to undo it", err, c.Table)
	}
	shown := shownPartition{
		Table: c.Table, Parts: c.Parts, Resumed: report.Resumed, Copied: report.Copied, Compared: report.Compared,
		Seconds: report.Duration.Seconds(), Waited: report.Longest.Seconds(),
	}
	return s.show(shown, func(p *page.Page) {
		p.Printf("idem.%s has %d partitions: %s rows copied, %s compared, in %s; writers waited for %s at most\n", c.Table, c.Parts,
			page.Count(report.Copied), page.Count(report.Compared), page.Age(report.Duration), report.Longest.Round(time.Millisecond))
	})
}

// abort drops the copy of the table and the trigger that an interrupted run left in the database.
// No data is lost, because the old table has all rows.
func (c *partitionCommand) abort(s *session, pool *pgxpool.Pool, config partition.Config) error {
	if err := c.ask(s, fmt.Sprintf("drops the trigger of idem.%s and its unfinished copy", c.Table)); err != nil {
		return err
	}
	begun, err := partition.Abort(s.ctx, pool, config)
	s.progress("")
	if err != nil {
		return err
	}
	if !begun {
		return noRecord("there is no interrupted run for idem.%s", c.Table)
	}
	return s.show(shownPartition{Table: c.Table, Aborted: true}, func(p *page.Page) { p.Printf("undone: idem.%s is as before\n", c.Table) })
}

// describePartition returns a line about the progress of a run.
func describePartition(table string, p partition.Progress) string {
	if p.Waiting != nil || p.Total == 0 {
		return fmt.Sprintf("%s: %s", table, p.Phase)
	}
	return fmt.Sprintf("%s: %s %3d%%", table, p.Phase, 100*p.Done/p.Total)
}

// shownPartition is the JSON document of idem partition.
type shownPartition struct {
	Table    string  `json:"table"`
	Aborted  bool    `json:"aborted,omitempty"`
	Parts    int     `json:"parts,omitempty"`
	Resumed  bool    `json:"resumed,omitempty"`
	Copied   int64   `json:"copied"`
	Compared int64   `json:"compared"`
	Seconds  float64 `json:"seconds"`
	Waited   float64 `json:"writers_waited_seconds"` // the longest time that writers waited
}
