package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/optional"
)

func TestMetrics_HaveStableNames(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order()
	s.order()
	s.order(withBody(aSamovar))
	answer := s.getMetrics(withHeader("Authorization"))
	var got []string
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+ \S+)$`).FindAllStringSubmatch(answer.Body.String(), -1) {
		got = append(got, line[1])
	}
	slices.Sort(got)
	if diff := cmp.Diff(exported, got); diff != "" {
		t.Errorf("(-want +exported)\n%s", diff)
	}
	for _, secret := range []string{"acme", "globex", `"k"`, "teapot", "POST"} {
		if strings.Contains(answer.Body.String(), secret) {
			t.Errorf("%q is exported:\n%s", secret, answer.Body)
		}
	}
}

// exported lists the metrics of a service that has placed an order.
var exported = []string{
	"db_client_connection_count gauge", "db_client_connection_max gauge", "db_client_connection_timeouts_total counter",
	"idem_acts gauge", "idem_call_duration_seconds histogram", "idem_commit_unknown_total counter", "idem_dead_letters gauge",
	"idem_inbox_failing_age_seconds gauge", "idem_keys_held gauge",
	"idem_operations gauge", "idem_operations_late_seconds gauge", "idem_operations_parked_age_seconds gauge", "idem_outbox_delayed gauge", "idem_outbox_held gauge",
	"idem_outbox_oldest_age_seconds gauge", "idem_outbox_waiting gauge", "idem_pool_waits_total counter",
	"idem_purge_waiting gauge", "idem_records gauge", "idem_replay_age_seconds histogram", "idem_replay_unreadable_total counter", "idem_rows_dead gauge", "idem_rows_live gauge",
	"idem_storage_size_bytes gauge", "idem_transactions gauge", "idem_transactions_age_seconds gauge", "target_info gauge",
}

// Every metric in the alert rules and in the dashboard is exported, or is an instrument of idemotel
// that exports nothing before its first event.
func TestMetrics_CoverRulesAndDashboard(t *testing.T) {
	t.Parallel()
	instruments := ""
	sources, err := filepath.Glob("../../idemotel/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		instruments += readFile(t, name)
	}
	metric := regexp.MustCompile(`\b(?:idem|db_client)_[a-z_]+\b`)
	label := regexp.MustCompile(`\b[a-z_]+ *(?:=|!=|=~|!~)\\?"|\{\{[^}]*\}\}|\b(?:by|without|on|ignoring|group_left) ?\([^)]*\)`)
	var expressions []string
	for _, found := range regexp.MustCompile(`"expr": "(.*)"`).FindAllStringSubmatch(readFile(t, "../../docs/operate/dashboard.json"), -1) {
		expressions = append(expressions, found[1])
	}
	for _, found := range regexp.MustCompile(`(?s)expr: (.*?)\n +(?:for|labels|annotations|keep_firing_for):`).FindAllStringSubmatch(rules(t), -1) {
		expressions = append(expressions, found[1])
	}
	tried := 0
	for _, expression := range expressions {
		for _, name := range metric.FindAllString(label.ReplaceAllString(expression, ""), -1) {
			tried++
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if slices.ContainsFunc(exported, func(e string) bool { return strings.HasPrefix(e, base+" ") || strings.HasPrefix(e, name+" ") }) {
				continue
			}
			instrument := regexp.MustCompile(`_(seconds|bytes|total)$`).ReplaceAllString(base, "")
			if !strings.Contains(instruments, `"`+strings.ReplaceAll(instrument, "_", ".")+`"`) {
				t.Errorf("%s is not exported: %s", name, expression)
			}
		}
	}
	if tried < 40 {
		t.Errorf("found only %d names", tried)
	}
}

func rules(t *testing.T) string { return readFile(t, "../../docs/operate/rules.yml") }

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// getMetrics returns the metrics, including those that are read from the database. It repeats the
// request, because a collection waits only a short time for the database.
func (s *shop) getMetrics(edits ...edit) *httptest.ResponseRecorder {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		answer := s.get("/metrics", edits...)
		wantStatus(s.t, answer, http.StatusOK)
		if strings.Contains(answer.Body.String(), "idem_transactions ") {
			return answer
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Fatal("the metrics never include those of the database")
	return nil
}

func TestAlertRules_PassTheirUnitTests(t *testing.T) {
	t.Parallel()
	promtool := optional.Program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../../docs/operate"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestAlertRules_AreInTheDocs(t *testing.T) {
	t.Parallel()
	doc := readFile(t, "../../docs/observing.md")
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(rules(t), -1)
	if len(alerts) < 10 {
		t.Fatalf("found %d alerts", len(alerts))
	}
	for _, alert := range alerts {
		if !strings.Contains(doc, "\n### "+alert[1]+"\n") {
			t.Errorf("docs/observing.md has no section %s", alert[1])
		}
		if link := "docs/observing.md#" + strings.ToLower(alert[1]) + "\n"; !strings.Contains(rules(t), link) {
			t.Errorf("%s has no link to its section", alert[1])
		}
	}
}
