package command

import (
	"context"
	"encoding/json"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/stats"
)

type statsCommand struct {
	Exact bool `help:"Count, and do not estimate: reads the whole table, until --timeout."`
}

// Run prints the figures. With --exact it also counts the records.
func (c *statsCommand) Run(s *session) error {
	v, err := readStats(s)
	if err != nil {
		return err
	}
	shown := newShownStats(v)
	if c.Exact {
		s.progress("counting")
		shown.Counted, err = queryTx(s, record.CountAll)
		s.progress("")
		if err != nil {
			return err
		}
	}
	return s.show(shown, func(p *page.Page) { statsText(p, v, shown.Counted) })
}

// readStats reads the figures, within --timeout.
func readStats(s *session) (stats.Stats, error) {
	pool, err := s.connected()
	if err != nil {
		return stats.Stats{}, err
	}
	ctx, cancel := s.withTimeout()
	defer cancel()
	v, err := stats.Read(ctx, pool)
	return v, s.timedOut(ctx, err)
}

// shownStats is the JSON document of idem stats.
type shownStats struct {
	At         time.Time     `json:"at"`
	Records    shownFigure   `json:"records"`
	Expired    shownFigure   `json:"expired"`
	Oldest     shownFigure   `json:"oldest_expired_seconds"`
	Dead       shownFigure   `json:"dead_rows"`
	HeapBytes  int64         `json:"heap_bytes"`
	IndexBytes int64         `json:"index_bytes"`
	OtherBytes int64         `json:"other_bytes"`
	AnalyzedAt *time.Time    `json:"analyzed_at"`
	VacuumedAt *time.Time    `json:"vacuumed_at"`
	InFlight   shownInFlight `json:"in_flight"`
	Purge      shownPurging  `json:"purge"`

	Counted *record.Counts `json:"counted,omitempty"` // set only with --exact
}

// shownFigure is a number and its quality: exact, estimate or unknown. An unknown number is null.
type shownFigure struct {
	Value   any    `json:"value"`
	Quality string `json:"quality"`
	Note    string `json:"note,omitempty"`
}

type shownInFlight struct {
	Transactions int64       `json:"transactions"`
	Keys         int64       `json:"keys"`
	Oldest       shownFigure `json:"oldest_seconds"`
}

type shownPurging struct {
	Lag        shownFigure `json:"lag_seconds"`
	Speed      shownFigure `json:"records_per_second"`
	UnderWay   bool        `json:"under_way"`
	WaitingFor string      `json:"waiting_for,omitempty"`
	Pages      int64       `json:"pages"`
	TotalPages int64       `json:"total_pages"`
	LastEnded  *time.Time  `json:"last_finished_at"`
}

// newShownStats returns the JSON document. For the purge it has the progress in the table
// idem.records only.
func newShownStats(v stats.Stats) shownStats {
	sweep := v.Purge.Sweep("records")
	return shownStats{
		At:      v.ReadAt.UTC(),
		Records: newShownFigure(v.Records.Count), Expired: newShownFigure(v.Records.Expired), Oldest: newShownFigure(v.Records.OldestExpired),
		Dead: newShownFigure(v.Records.DeadRows), HeapBytes: v.Records.HeapBytes, IndexBytes: v.Records.IndexBytes, OtherBytes: v.Records.OtherBytes,
		AnalyzedAt: timeOrNil(v.Records.AnalyzedAt), VacuumedAt: timeOrNil(v.Records.VacuumedAt),
		InFlight: shownInFlight{v.InFlight.Transactions, v.InFlight.Keys, newShownFigure(v.InFlight.Oldest)},
		Purge: shownPurging{
			Lag: newShownFigure(v.Purge.Lag), Speed: newShownFigure(v.Purge.Rate),
			UnderWay: sweep.Active(), WaitingFor: string(sweep.WaitingFor), Pages: sweep.Pages, TotalPages: sweep.TotalPages, LastEnded: timeOrNil(sweep.LastFinishedAt),
		},
	}
}

// inMood colors text red for the mood "bad" and yellow for the mood "warn" of a fact or an event.
func inMood(p *page.Page, mood, text string) string {
	switch mood {
	case "bad":
		return p.Red(text)
	case "warn":
		return p.Yellow(text)
	}
	return text
}

// newShownFigure returns a figure for JSON. It converts a duration to seconds.
func newShownFigure[T any](f stats.Figure[T]) shownFigure {
	shown := shownFigure{Quality: string(f.Quality), Note: f.Note}
	if f.Known() {
		shown.Value = f.Value
	}
	if span, ok := shown.Value.(time.Duration); ok {
		shown.Value = span.Seconds()
	}
	return shown
}

// timeOrNil returns t in UTC. For the zero time it returns nil, which becomes null in JSON.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// statsText prints the figures of the table idem.records, the figures that may need a person's
// attention, and the progress of the purge. If counted is not nil, it adds the exact number of
// records by state, and by seal key if any response is sealed.
func statsText(p *page.Page, v stats.Stats, counted *record.Counts) {
	var pairs []page.Pair
	facts := append(record.FactsOfRecords(&v), record.FactsOfPeople(&v)...)
	if v.Purge.Sweeps.Known() {
		sweep := v.Purge.Sweep("records")
		f := record.FactOfSweep(&sweep, v.ReadAt)
		facts = append(facts, record.Fact{Name: "purge", Value: f.Value, Mood: f.Mood})
	} else {
		facts = append(facts, record.Fact{Name: "purge", Value: "unknown", Note: v.Purge.Sweeps.Note})
	}
	for _, f := range facts {
		f.Value = inMood(p, f.Mood, f.Value)
		if f.Note != "" {
			f.Value += p.Dim(" (" + f.Note + ")")
		}
		pairs = append(pairs, page.Pair{Name: f.Name, Value: f.Value})
	}
	p.Pairs(pairs)
	if counted == nil {
		return
	}
	p.Printf("\n")
	var rows [][]string
	for _, s := range counted.States {
		rows = append(rows, []string{s.State, page.Count(s.Live), page.Count(s.Expired), page.Bytes(s.ResponseBytes)})
	}
	p.Table(page.Columns("COUNTED", ">LIVE", ">EXPIRED", ">RESPONSES"), rows)
	if len(counted.Sealed) == 0 || len(counted.Sealed) == 1 && counted.Sealed[0].Key == "" {
		return
	}
	p.Printf("\n")
	rows = nil
	for _, s := range counted.Sealed {
		key := "plain"
		if s.Key != "" {
			key = page.Safe(s.Key)
		}
		rows = append(rows, []string{key, page.Count(s.Records)})
	}
	p.Table(page.Columns("SEALED WITH", ">RECORDS"), rows)
}

type watchCommand struct {
	Every span `default:"2s" placeholder:"SPAN" help:"Time between two readings. Default: ${default}."`
}

// Run prints the figures of idem stats repeatedly until the command is interrupted. If the first
// reading fails, the command ends. If a later reading fails, the command ends with --json; without
// --json it prints the error and reads again after the interval.
func (c *watchCommand) Run(s *session) error {
	encoder := json.NewEncoder(s.Stdout)
	encoder.SetEscapeHTML(false)
	next := time.NewTicker(max(time.Duration(c.Every), 100*time.Millisecond))
	defer next.Stop()
	for first := true; ; first = false {
		v, err := readStats(s)
		switch {
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case err != nil && (first || s.globals.JSON):
			return err
		case err != nil:
			printError(s.World, explained(err).Error())
		case s.globals.JSON:
			err = encoder.Encode(newShownStats(v))
		default:
			if s.OutIsTerminal {
				s.page.Printf("\x1b[H\x1b[2J") // move the cursor to the top left, and clear the screen
			}
			statsText(s.page, v, nil)
			s.page.Printf("read at %s, every %v; Ctrl-C ends\n", v.ReadAt.UTC().Format("15:04:05 MST"), time.Duration(c.Every))
		}
		if s.globals.JSON && err != nil {
			return err
		}
		if s.page.Err() != nil {
			return s.page.Err()
		}
		// After a reading that took longer than the interval, the next one begins at once, because
		// a tick is waiting. Further ticks were dropped.
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-next.C:
		}
	}
}
