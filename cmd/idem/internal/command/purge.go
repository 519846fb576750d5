package command

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/purge"
)

type purgeCommand struct {
	DryRun bool    `help:"Count the rows that would be deleted, and change nothing. It scans the tables all the same."`
	Max    span    `placeholder:"SPAN" help:"Maximum duration. The next purge continues there."`
	Grace  span    `default:"1h" placeholder:"SPAN" help:"Time that a record stays after it expired. Default: ${default}."`
	Share  float64 `default:"0.25" placeholder:"PART" help:"Share of the time in which it works, up to 1. Default: ${default}."`
	confirmFlag
}

// Run purges all tables once, after confirmation. If the purge fails after the first table, Run
// prints the report and then returns the error.
func (c *purgeCommand) Run(s *session) error {
	options := purge.Options{
		DryRun: c.DryRun, Max: time.Duration(c.Max), Grace: time.Duration(c.Grace), Share: c.Share,
		Progress: func(p purge.Progress) { s.progress("%s", describeSweep(p)) },
	}
	switch {
	case c.Share <= 0 || c.Share > 1:
		return usage("--share must be above 0 and at most 1")
	case c.Grace == 0:
		options.Grace = time.Microsecond // zero would mean the default of package purge
	}
	pool, err := s.connected()
	if err != nil {
		return err
	}
	if !c.DryRun {
		will := fmt.Sprintf("deletes rows that expired more than %s ago", page.Age(options.Grace))
		if err := c.ask(s, will); err != nil {
			return err
		}
	}
	// Once sweeps one table after the other. If a sweep fails, the report of the earlier sweeps is
	// printed before the error.
	report, err := purge.Once(s.ctx, pool, options)
	s.progress("")
	if err != nil && len(report.Tables) == 0 {
		return err
	}
	if shown := s.show(newShownPurge(report), func(p *page.Page) { c.text(p, report) }); err == nil {
		err = shown
	}
	if err != nil {
		return err
	}
	return unfinished(report)
}

// unfinished returns an error if a sweep ended early, so that a scheduler sees that the command
// failed. It returns nil for a sweep that reached --max or that another process is making.
func unfinished(report purge.Report) error {
	for _, sweep := range report.Tables {
		switch sweep.Ended {
		case purge.Finished, purge.Elsewhere, purge.TimeIsUp:
		default:
			return fmt.Errorf("the sweep of %s ended early: %s; see idem doctor; the next purge continues there", sweep.Table, sweep.Ended)
		}
	}
	return nil
}

// describeSweep returns a line with a progress bar for the sweep of a table.
func describeSweep(p purge.Progress) string {
	share := 0
	if p.TotalPages > 0 {
		share = int(min(100, 100*p.WalkedPages/p.TotalPages))
	}
	const width = 20
	bar := fmt.Sprintf("%-*s", width, string(slices.Repeat([]rune{'#'}, share*width/100)))
	text := fmt.Sprintf("%s [%s] %3d%%  %s deleted", p.Table, bar, share, page.Count(p.Deleted))
	if p.Waiting != "" {
		text += ", waits: " + string(p.Waiting)
	}
	return text
}

// shownPurge is the JSON document of idem purge.
type shownPurge struct {
	DryRun   bool         `json:"dry_run"`
	Deleted  int64        `json:"deleted"` // with dry_run, the number that would be deleted
	Kept     int64        `json:"kept"`
	Skipped  int64        `json:"skipped"`
	Seconds  float64      `json:"seconds"`
	Finished bool         `json:"finished"`
	Tables   []shownSweep `json:"tables"`
}

type shownSweep struct {
	Table   string       `json:"table"`
	Ended   purge.Reason `json:"ended"`
	Resumed bool         `json:"resumed"`
	Deleted int64        `json:"deleted"`
	Kept    int64        `json:"kept"`
	Skipped int64        `json:"skipped"`
	Pages   int64        `json:"pages"`
	Seconds float64      `json:"seconds"`
	// Hidden is the number of standbys whose lag this role may not see. The purge did not wait for
	// them.
	Hidden int64                    `json:"hidden_standbys,omitempty"`
	Waited map[purge.Reason]float64 `json:"waited_seconds,omitempty"`
}

// newShownPurge returns the JSON document of a report.
func newShownPurge(r purge.Report) shownPurge {
	shown := shownPurge{
		DryRun: r.DryRun, Deleted: r.Deleted, Kept: r.Kept, Skipped: r.Skipped, Seconds: r.Duration.Seconds(), Finished: true, Tables: []shownSweep{},
	}
	for _, t := range r.Tables {
		sweep := shownSweep{
			Table: t.Table, Ended: t.Ended, Resumed: t.Resumed, Deleted: t.Deleted, Kept: t.Kept, Skipped: t.Skipped,
			Pages: t.Pages, Seconds: t.Duration.Seconds(), Hidden: t.Hidden,
		}
		for reason, waited := range t.Waited {
			if sweep.Waited == nil {
				sweep.Waited = map[purge.Reason]float64{}
			}
			sweep.Waited[reason] = waited.Seconds()
		}
		shown.Finished = shown.Finished && t.Ended == purge.Finished
		shown.Tables = append(shown.Tables, sweep)
	}
	return shown
}

// text prints a row for each table. A dry run only counts, so its heading says WOULD DELETE.
func (c *purgeCommand) text(p *page.Page, r purge.Report) {
	deleted := "DELETED"
	if r.DryRun {
		deleted = "WOULD DELETE"
	}
	var rows [][]string
	hidden := int64(0) // the tables have the same standbys, so a sum would count them twice
	for _, t := range r.Tables {
		hidden = max(hidden, t.Hidden)
		rows = append(rows, []string{
			t.Table, page.Count(t.Deleted), page.Count(t.Kept), page.Count(t.Skipped), page.Count(t.Pages), page.Age(t.Duration), string(t.Ended),
		})
	}
	p.Table(page.Columns("TABLE", ">"+deleted, ">KEPT", ">SKIPPED", ">PAGES", ">TOOK", "ENDED"), rows)
	if hidden > 0 {
		p.Printf("%s\n", page.Wrap(fmt.Sprintf("It did not wait for %d standbys, because this role may not see their lag: GRANT pg_monitor to it.", hidden), "", 100))
	}
}
