package vitals

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/vitals/db"
)

// spread is how the moments of expiry are distributed, as ANALYZE has seen them in a sample.
type spread struct {
	common      []time.Time // moments that many rows share
	frequencies []float64   // of the rows, for each of them
	bounds      []time.Time // of portions of equal size, that together are the rest
}

// spreadOf reads the statistics of a part, or says why there are none.
func spreadOf(part db.PartsRow) (s spread, why string) {
	switch {
	case !part.Readable:
		return s, "this role may not read idem.records, and so not what ANALYZE has seen of it"
	case part.Bounds == "" && part.Common == "":
		return s, "the table was never analyzed: autovacuum does it, or ANALYZE idem.records"
	}
	var err error
	if s.bounds, err = moments(part.Bounds); err == nil {
		s.common, err = moments(part.Common)
	}
	if err == nil && part.Frequencies != "" {
		err = json.Unmarshal([]byte(part.Frequencies), &s.frequencies)
	}
	if err != nil || len(s.frequencies) != len(s.common) {
		return s, fmt.Sprintf("the statistics of the table are not understood (%v)", err)
	}
	return s, ""
}

// endless are the moments that SQL alone can write.
var endless = map[string]time.Time{
	"infinity":  time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	"-infinity": time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
}

// moments reads an array of timestamps as JSON, in which no setting of the session changes how they are written.
func moments(text string) ([]time.Time, error) {
	if text == "" {
		return nil, nil
	}
	var written []string
	if err := json.Unmarshal([]byte(text), &written); err != nil {
		return nil, err
	}
	read := make([]time.Time, len(written))
	for i, w := range written {
		if at, ok := endless[w]; ok {
			read[i] = at
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, w)
		if err != nil {
			return nil, err
		}
		read[i] = at
	}
	return read, nil
}

// expired returns which share of the rows has expired, and for how long the oldest of these has been. Rows that expired before
// swept are there no more.
func (s *spread) expired(now, swept time.Time) (share float64, oldest time.Duration) {
	rest := 1.0
	var past, gone float64
	count := func(at time.Time, weight float64) {
		switch {
		case at.Before(swept):
			gone += weight
		case at.Before(now):
			past += weight
			oldest = max(oldest, now.Sub(at))
		}
	}
	for i, at := range s.common {
		count(at, s.frequencies[i])
		rest -= s.frequencies[i]
	}
	for i := 1; i < len(s.bounds); i++ {
		from, to := s.bounds[i-1], s.bounds[i]
		weight := rest / float64(len(s.bounds)-1)
		before := within(from, to, swept)
		gone += weight * before
		if upTo := within(from, to, now) - before; upTo > 0 {
			past += weight * upTo
			since := from
			if swept.After(from) {
				since = swept
			}
			oldest = max(oldest, now.Sub(since))
		}
	}
	if gone >= 1 {
		return 0, 0
	}
	return min(past/(1-gone), 1), oldest
}

// within returns which part of the time between two moments lies before a third.
func within(from, to, at time.Time) float64 {
	switch {
	case !at.After(from):
		return 0
	case !at.Before(to):
		return 1
	}
	return float64(at.Sub(from)) / float64(to.Sub(from))
}
