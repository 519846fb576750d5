package ui_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/idem-go/idem/operation"
)

func TestOperation_ShowsReasonNextStepAndCallKey(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	d.keep("shop", "a key of some length", "secret")
	got := d.get("operations/"+parkedID).want(t, 200, "call_in_doubt", "<strong>Next:</strong> Ask the other side by the key of the call",
		operation.CallKey(parkedID, "call", "shop"), "Last error: <bdi>the bank says shop")
	for _, state := range []string{"operations", "operations/" + parkedID} {
		text := d.get(state).text
		_, main, _ := strings.Cut(text, `<div id="live">`)
		if at := strings.Index(main, "call_in_doubt"); at < 0 || at > strings.Index(main, "a ke…") {
			t.Errorf("%s does not begin with the reason:\n%s", state, main)
		}
	}
	_, line, _ := strings.Cut(got.text, `<ol class="timeline">`)
	line, _, _ = strings.Cut(line, "</ol>")
	entries := regexp.MustCompile(`(?s)<li class="(\w+)">.*?</li>`).FindAllStringSubmatch(line, -1)
	var moods []string
	for _, e := range entries {
		moods = append(moods, e[1])
	}
	// The entries are the transaction, the call in doubt, and the signal that is not received yet.
	if strings.Join(moods, " ") != "done bad warn" {
		t.Errorf("the timeline has %q:\n%s", moods, line)
	}
	for _, part := range []string{"has no undo", "begun", "attempt 2 of step", "not received yet"} {
		if !strings.Contains(line, part) {
			t.Errorf("the timeline lacks %q:\n%s", part, line)
		}
	}
}

func TestResolve_RecordsTheOutcome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		form    []string
		outcome string
	}{
		"happened":     {[]string{"finding", "happened", "value", `{"charge":"ch_1"}`}, "happened"},
		"not happened": {[]string{"finding", "not-happened"}, "not happened"},
		"refused":      {[]string{"finding", "refused", "refusal", "no money"}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newActingHarness(t, withToken)
			d.login()
			send := func(pairs ...string) answer { return d.post("resolve", append([]string{"id", parkedID}, pairs...)...) }
			about := []string{"epoch", "1", "seq", "2"}
			d.get("operations/"+parkedID).want(t, 200, `name="epoch" value="1"`, `name="seq" value="2"`, "the call is not made again", operation.CallKey(parkedID, "call", "shop"))
			send(append(about, test.form...)...).want(t, 400, "needs a reason")
			for _, wrong := range [][]string{{}, {"finding", "none"}, {"finding", "happened", "value", "{"}, {"finding", "happened"}, {"finding", "refused"}} {
				send(append(append(about, "reason", "INC-1"), wrong...)...).want(t, 400, "Nothing was changed")
			}
			for _, stale := range [][]string{{"epoch", "2", "seq", "2"}, {"epoch", "1", "seq", "1"}, {}} {
				send(append(append(stale, "reason", "INC-1"), test.form...)...).want(t, 409, "has changed since it was read")
			}
			d.unchanged()
			send(append(append(about, "reason", "INC-1: the bank says so"), test.form...)...).want(t, 200, "The outcome is recorded", "State</dt><dd class=\"\">running")
			d.wantActs("resolve, " + test.outcome + ", ann, INC-1: the bank says so")
		})
	}
}

func TestResolve_LeavesSealedValuesToTheCommand(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	d.login()
	d.exec(`UPDATE idem.operations SET input = convert_to(E'idem.sealed/1\n', 'UTF8') || '\x026b31'::bytea WHERE id = $1`, parkedID)
	d.post("resolve", "id", parkedID, "epoch", "1", "seq", "2", "finding", "not-happened", "reason", "INC-1").want(t, 409, "--seal-keys", "Nothing was changed")
	d.unchanged()
}
