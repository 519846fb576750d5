package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// panel is what matters here of a panel of the dashboard.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// wantPanels fails the test unless every expression of the dashboard is one, and comes to show something for one of the services.
func (p *prometheusServer) wantPanels(t *testing.T) {
	t.Helper()
	shown := 0
	for _, panel := range panels(t) {
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", `job="$job"`, `job=~".+"`).Replace(target.Expr)
			expr = strings.TrimSuffix(expr, "> 0") // the purge need not wait for anything
			if mayBeAbsent.MatchString(expr) {
				p.query(t, expr)
				continue
			}
			shown++
			p.await(t, panel.Title+" to show something: "+expr, func() bool { return len(p.query(t, expr)) > 0 })
		}
	}
	if shown < 25 {
		t.Errorf("only %d expressions were tried", shown)
	}
}

// mayBeAbsent are series that no misbehaviour brings about, and those of the steps of operations.
var mayBeAbsent = regexp.MustCompile(`idem_retries_total|idem_step_duration`)
