package command

import (
	"context"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/cmd/idem/internal/page"
)

// ShowChecks prints results of the doctor, for tests without a server.
func ShowChecks(w World, json, all bool, results []doctor.Result) error {
	shown := newShownChecks(results)
	s := newSession(context.Background(), w, &globals{JSON: json}, "doctor")
	return s.show(shown, func(p *page.Page) { shown.text(p, all) })
}

// DoctorsExit returns the exit code of idem doctor for these results.
func DoctorsExit(ctx context.Context, w World, results []doctor.Result) int {
	shown := newShownChecks(results)
	return finish(ctx, w, shown.verdict())
}
