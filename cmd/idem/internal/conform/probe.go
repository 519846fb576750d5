package conform

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what is tried.
type Options struct {
	URL        *url.URL
	Profile    *Profile
	Request    *Request
	Credential http.Header
	Other      http.Header // another principal's; may be nil
	Timeout    time.Duration
}

// Verdict says what was found of a rule.
type Verdict string

// The verdicts.
const (
	Kept     Verdict = "kept"
	Broken   Verdict = "broken"
	NotTried Verdict = "not tried"
)

// finding is what came of trying a rule.
type finding struct {
	verdict Verdict
	why     string
	seen    []*answer
}

// Result is what was found of a rule.
type Result struct {
	Rule
	Verdict  Verdict    `json:"verdict"`
	Why      string     `json:"why,omitempty"`
	Evidence []Exchange `json:"evidence,omitempty"`
}

// probe is one run over the rules of a profile.
type probe struct {
	*client
	ctx     context.Context
	profile *Profile
	rule    string

	unique       string // that of the first request
	key          string
	first, again *answer
	tells        bool // two requests have different answers
}

// Test tries the rules. It returns what it has found, also if ctx has ended meanwhile.
func Test(ctx context.Context, o Options, progress func(rule string, done, of int)) ([]Result, error) {
	if o.Profile.inBody {
		var object map[string]any
		if json.Unmarshal([]byte(o.Request.body("x")), &object) != nil {
			return nil, fmt.Errorf("the profile %s has its key in the body, as request_id: the body has to be an object of JSON", o.Profile.Name)
		}
	}
	p := &probe{client: newClient(&o), ctx: ctx, profile: o.Profile, unique: newUnique()}
	defer p.close()
	p.key = p.newKey()
	p.begin()
	var results []Result
	for i, rule := range o.Profile.Rules {
		progress(rule.Name, i, len(o.Profile.Rules))
		p.rule = rule.Name
		found := p.impossible()
		if found == nil {
			f := rule.try(p)
			found = &f
		}
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		result := Result{Rule: rule, Verdict: found.verdict, Why: found.why}
		for _, a := range found.seen {
			result.Evidence = append(result.Evidence, a.shown)
		}
		results = append(results, result)
	}
	return results, nil
}

// begin sends a request, the same again, and the same under another key.
func (p *probe) begin() {
	p.first = p.ask(p.key, p.unique)
	if !p.first.ok() {
		return
	}
	p.again = p.ask(p.key, p.unique)
	p.tells = !p.ask(p.newKey(), p.unique).same(p.first)
}

// impossible says why nothing can be tried.
func (p *probe) impossible() *finding {
	if p.first.ok() {
		return nil
	}
	why := fmt.Sprintf("the first request was answered %d: give one with --request that succeeds", p.first.status)
	switch {
	case p.first.err != nil:
		why = "the first request had no answer: " + p.first.shown.Error
	case p.first.status >= 300 && p.first.status < 400:
		why = fmt.Sprintf("the first request was answered %d: redirects are not followed, give the URL that they lead to", p.first.status)
	}
	return &finding{NotTried, why, []*answer{p.first}}
}

func newUnique() string { return strings.ToLower(rand.Text()[:16]) }

// newKey returns a key: a UUID of version 4, which every profile takes.
func (p *probe) newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// with returns the request under a key, as the profile sends it. An empty key is none.
func (p *probe) with(key, body string) sending {
	switch {
	case key == "":
		return sending{body: body}
	case p.profile.inBody:
		var object map[string]any
		_ = json.Unmarshal([]byte(body), &object) // it was checked
		object["request_id"] = key
		changed, _ := json.Marshal(object)
		return sending{body: string(changed)}
	}
	return sending{keys: []string{p.field(key)}, body: body}
}

// field is a key as it is in the header.
func (p *probe) field(key string) string {
	if p.profile.quoted {
		return `"` + key + `"`
	}
	return key
}

func (p *probe) ask(key, unique string) *answer {
	return p.send(p.ctx, p.with(key, p.request.body(unique)))
}

// askAll sends a request many times at once.
func (p *probe) askAll(n int, key, unique string) []*answer {
	answers := make([]*answer, n)
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			answers[i] = p.ask(key, unique)
		})
	}
	done.Wait()
	return answers
}

// settled asks until an answer is no conflict with a request that is still under way.
func (p *probe) settled(key, unique string) *answer {
	const most = 20
	deadline := time.Now().Add(p.timeout)
	for n := 0; ; n++ {
		a := p.ask(key, unique)
		if a.err != nil || a.status != http.StatusConflict && a.status != http.StatusTooEarly || n == most || time.Now().After(deadline) {
			return a
		}
		select {
		case <-time.After(100 * time.Millisecond << min(n, 4)):
		case <-p.ctx.Done():
			return a
		}
	}
}

// canTell reports whether a replay can be told from an execution.
func (p *probe) canTell() bool { return p.tells || p.again.isMarked() }

func (p *probe) cannotTell(seen ...*answer) finding {
	return finding{NotTried, "two requests under different keys have the same answer, and replays are not marked: an execution cannot be told from a replay", seen}
}

// isRefusal reports whether an answer has one of these statuses and the code that the profile has for the rule, and otherwise what is wrong.
func (p *probe) isRefusal(a *answer, statuses []int) (wrong string) {
	switch {
	case a.err != nil:
		return "there was no answer: " + a.shown.Error
	case !slices.Contains(statuses, a.status):
		return fmt.Sprintf("it was answered %d, not %s", a.status, strings.ReplaceAll(strings.Trim(fmt.Sprint(statuses), "[]"), " ", " or "))
	}
	want, ok := p.profile.codes[p.rule]
	if !ok {
		return ""
	}
	var said struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(a.body, &said) != nil || said.Code != want {
		return fmt.Sprintf("the body has the code %q, not %q", said.Code, want)
	}
	return ""
}

func verdict(wrong string, seen ...*answer) finding {
	if wrong != "" {
		return finding{Broken, wrong, seen}
	}
	return finding{Kept, "", seen}
}
