package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/cmd/idem/internal/glossary"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

const (
	doctorFresh = time.Minute     // maximum age of the findings that are shown
	doctorLimit = 2 * time.Second // statement timeout of the checks
)

// examination caches the last results of the doctor. The mutex is locked while the doctor runs, so
// that only one request at a time runs the doctor.
type examination struct {
	mu sync.Mutex
	examined
}

type finding struct {
	doctor.Finding
	Check, Mood string
}

// examined is the data of the page of the doctor.
type examined struct {
	At       time.Time
	Checks   int
	Findings []finding // the most severe first
}

// readNothing is the function sheet.read of a page that needs no query in the transaction.
func readNothing(context.Context, pgx.Tx, url.Values) (any, error) { return nil, nil }

// examine returns the findings of the doctor. It examines the database only if the last findings
// are older than a minute.
func examine(ctx context.Context, s *site, _ any) (any, error) {
	e := &s.examination
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.At) > doctorFresh {
		results, err := doctor.Examine(ctx, s.Pool, doctor.Options{Limits: doctor.Limits{Statement: min(s.Timeout, doctorLimit)}}, func(string, int, int) {})
		if err != nil {
			return nil, err
		}
		e.examined = examined{time.Now(), len(results), findingsOf(results)}
	}
	return e.examined, nil
}

var moodOf = map[doctor.Level]string{doctor.Problem: "bad", doctor.Warning: "warn"}

// findingsOf returns all findings, the most severe first.
func findingsOf(results []doctor.Result) (all []finding) {
	for _, r := range results {
		for _, f := range r.Findings {
			all = append(all, finding{f, r.Check, moodOf[f.Level]})
		}
	}
	slices.SortStableFunc(all, func(a, b finding) int {
		return cmp.Compare(slices.Index(doctor.Levels, a.Level), slices.Index(doctor.Levels, b.Level))
	})
	return all
}

// fact summarizes the last results of the doctor for the overview. It does not wait if the doctor
// is running.
func (e *examination) fact() record.Fact {
	f := record.Fact{Name: "findings of the doctor", Value: "not examined yet", Link: "doctor"}
	if !e.mu.TryLock() {
		f.Value = "being examined"
		return f
	}
	defer e.mu.Unlock()
	if e.At.IsZero() {
		return f
	}
	counts := map[doctor.Level]int{}
	for _, one := range e.Findings {
		counts[one.Level]++
	}
	f.Value = fmt.Sprintf("%d problems, %d warnings", counts[doctor.Problem], counts[doctor.Warning])
	f.Note = page.Age(time.Since(e.At)) + " ago"
	f.Mood = cmp.Or(record.MoodIf(counts[doctor.Problem] > 0, "bad"), record.MoodIf(counts[doctor.Warning] > 0, "warn"))
	return f
}

func readTerms(context.Context, pgx.Tx, url.Values) (any, error) { return glossary.Terms, nil }
