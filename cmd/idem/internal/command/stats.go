package command

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/stats"
)

type statsCommand struct {
	Exact bool `help:"Count, and do not estimate: reads the whole table, until --timeout."`
}

func (statsCommand) Help() string {
	return `Reads no record: the figures come from the catalog, the statistics and the locks, so that the size of the table does not matter. An estimate says
what it is based on. --exact counts by reading the whole table in one statement, until --timeout.

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
		return v, fmt.Errorf("no answer within %v: raise --timeout, or run idem doctor", time.Duration(s.globals.Timeout))
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
		paint := map[string]func(string) string{"bad": p.Red, "warn": p.Yellow}[f.Mood]
		if paint != nil {
			f.Value = paint(f.Value)
		}
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
