package command

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/stats"
)

type statsCommand struct {
	Exact bool `help:"Count instead of estimating: reads the whole table, up to --timeout."`
}

func (statsCommand) Help() string {
	return `Reads no record: the figures come from the catalog, the statistics and the locks, so a table of any size answers at once. What is an
estimate says what it rests on. --exact counts by reading everything, in one statement that --timeout ends.

Example: idem stats --exact --timeout 5m`
}

func (c *statsCommand) Run(s *session) error {
	v, err := readStats(s)
	if err != nil {
		return err
	}
	shown := newShownStats(v)
	if c.Exact {
		s.progress("counting")
		shown.Counted, err = reading(s, record.CountAll)
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
	ctx, cancel := s.bounded()
	defer cancel()
	v, err := stats.Read(ctx, pool)
	if ctx.Err() != nil && s.ctx.Err() == nil {
		return v, fmt.Errorf("no answer within %v: raise --timeout, or see idem doctor", time.Duration(s.globals.Timeout))
	}
	return v, err
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

	Counted *record.Counts `json:"counted,omitempty"` // with --exact
}

// shownFigure is a number with its quality: exact, estimate or unknown. Value is null if it is
// unknown.
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

// newShownStats returns the JSON document. The progress of the purge is that of idem.records.
func newShownStats(v stats.Stats) shownStats {
	sweep := v.Purge.Sweep("records")
	return shownStats{
		At:      v.ReadAt.UTC(),
		Records: newShownFigure(v.Records.Count, same), Expired: newShownFigure(v.Records.Expired, same), Oldest: newShownFigure(v.Records.OldestExpired, inSeconds),
		Dead: newShownFigure(v.Records.DeadRows, same), HeapBytes: v.Records.HeapBytes, IndexBytes: v.Records.IndexBytes, OtherBytes: v.Records.OtherBytes,
		AnalyzedAt: moment(v.Records.AnalyzedAt), VacuumedAt: moment(v.Records.VacuumedAt),
		InFlight: shownInFlight{v.InFlight.Transactions, v.InFlight.Keys, newShownFigure(v.InFlight.Oldest, inSeconds)},
		Purge: shownPurging{
			Lag: newShownFigure(v.Purge.Lag, inSeconds), Speed: newShownFigure(v.Purge.Rate, func(f float64) any { return f }),
			UnderWay: sweep.Active(), WaitingFor: string(sweep.WaitingFor), Pages: sweep.Pages, TotalPages: sweep.TotalPages, LastEnded: moment(sweep.LastFinishedAt),
		},
	}
}

func newShownFigure[T any](f stats.Figure[T], value func(T) any) shownFigure {
	shown := shownFigure{Quality: string(f.Quality), Note: f.Note}
	if f.Known() {
		shown.Value = value(f.Value)
	}
	return shown
}

func same(n int64) any              { return n }
func inSeconds(d time.Duration) any { return d.Seconds() }

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func statsText(p *page.Page, v stats.Stats, counted *record.Counts) {
	pairs := []page.Pair{
		{Name: "records", Value: figure(p, v.Records.Count, page.Count)},
		{Name: "expired", Value: figure(p, v.Records.Expired, page.Count)},
		{Name: "oldest expired", Value: figure(p, v.Records.OldestExpired, page.Age)},
		{Name: "size", Value: fmt.Sprintf("%s in the table, %s in its index, %s besides", page.Bytes(v.Records.HeapBytes), page.Bytes(v.Records.IndexBytes), page.Bytes(v.Records.OtherBytes))},
		{Name: "dead rows", Value: figure(p, v.Records.DeadRows, page.Count)},
		{Name: "in flight", Value: inFlight(p, v.InFlight)},
		{Name: "purge", Value: purging(p, v)},
		{Name: "last analyzed", Value: page.Time(v.Records.AnalyzedAt)},
		{Name: "last vacuumed", Value: page.Time(v.Records.VacuumedAt)},
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

// figure formats a number. It marks an estimate, and adds what the estimate is based on.
func figure[T any](p *page.Page, f stats.Figure[T], say func(T) string) string {
	switch f.Quality {
	case stats.Exact:
		return say(f.Value)
	case stats.Estimate:
		return "about " + say(f.Value) + p.Dim(" ("+f.Note+")")
	}
	return "unknown" + p.Dim(" ("+f.Note+")")
}

func inFlight(p *page.Page, f stats.InFlight) string {
	if f.Transactions == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s keys in %s transactions, the oldest for %s", page.Count(f.Keys), page.Count(f.Transactions), figure(p, f.Oldest, page.Age))
}

// purging describes the last sweep of idem.records, and the one in progress. A sweep is in progress
// but not active if its process ended before the end of the table. The next purge resumes it.
func purging(p *page.Page, v stats.Stats) string {
	if !v.Purge.Sweeps.Known() {
		return figure(p, v.Purge.Sweeps, func([]stats.Sweep) string { return "" })
	}
	sweep := v.Purge.Sweep("records")
	text := "no sweep has finished yet"
	if !sweep.LastFinishedAt.IsZero() {
		text = "a sweep finished " + page.Relative(sweep.LastFinishedAt, v.ReadAt) + ", and deleted " + page.Count(sweep.LastDeleted)
	}
	if sweep.InProgress && sweep.TotalPages > 0 {
		share := fmt.Sprintf("%d %%", min(100, 100*sweep.Pages/sweep.TotalPages))
		if sweep.Active() {
			text += "; one is under way, " + share
		} else {
			text += "; one was left at " + share + ", and no process continues it"
		}
	}
	if sweep.WaitingFor != "" {
		text += ", " + p.Yellow("waits for: "+page.Safe(string(sweep.WaitingFor)))
	}
	return text
}
