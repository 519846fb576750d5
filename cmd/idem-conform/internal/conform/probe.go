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

// Options configure Test.
type Options struct {
	URL        *url.URL
	Profile    *Profile
	Request    *Request
	Credential http.Header
	Other      http.Header // the credential of another principal; may be nil
	Failing    string      // the body of a request that fails; may be empty
	Timeout    time.Duration
}

// Verdict is the outcome of a rule.
type Verdict string

const (
	Kept     Verdict = "kept"
	Broken   Verdict = "broken"
	NotTried Verdict = "not tried"
)

// finding is the outcome of a rule, with the reason for it and the answers that prove it.
type finding struct {
	verdict Verdict
	why     string
	seen    []*answer
}

// Result is a rule with its outcome, as it is reported.
type Result struct {
	Rule
	Verdict  Verdict    `json:"verdict"`
	Why      string     `json:"why,omitempty"`
	Evidence []Exchange `json:"evidence,omitempty"`
}

// probe is one run of Test. All rules use the answers to its first request and to the repetition of
// that request.
type probe struct {
	*client
	ctx     context.Context
	profile *Profile
	failing string
	rule    string

	unique       string // the value of Unique in the first request
	key          string
	first, again *answer
	differs      bool // equal requests with different keys get different answers, so an equal answer is a replay
}

// Test tests the server against all rules of the profile and returns one Result per rule. If ctx
// ends, Test returns the results so far and the cause. It also fails if the profile needs a JSON
// object as the body and the request has none.
func Test(ctx context.Context, o Options) ([]Result, error) {
	if o.Profile.inBody {
		var object map[string]any
		if json.Unmarshal([]byte(o.Request.body("x")), &object) != nil {
			return nil, fmt.Errorf("profile %s puts the key into the body as request_id: the body must be a JSON object", o.Profile.Name)
		}
	}
	p := &probe{client: newClient(&o), ctx: ctx, profile: o.Profile, failing: o.Failing, unique: newUnique()}
	defer p.close()
	p.key = p.newKey()
	p.begin()
	var results []Result
	for _, rule := range o.Profile.Rules {
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

// begin sends the first request, its repetition, and the same body with another key. If the third
// answer differs from the first, executions can be distinguished from replays.
func (p *probe) begin() {
	p.first = p.ask(p.key, p.unique)
	if !p.first.ok() {
		return
	}
	p.again = p.ask(p.key, p.unique)
	p.differs = !p.ask(p.newKey(), p.unique).same(p.first)
}

// impossible returns a finding NotTried if the first request did not succeed, and nil otherwise.
// Without a success no rule can be judged.
func (p *probe) impossible() *finding {
	if p.first.ok() {
		return nil
	}
	why := fmt.Sprintf("the first request was answered with %d: give one with --request that succeeds", p.first.status)
	switch {
	case p.first.err != nil:
		why = "the first request got no answer: " + p.first.shown.Error
	case p.first.status >= 300 && p.first.status < 400:
		why = fmt.Sprintf("the first request was answered with %d: redirects are not followed, so give the target URL", p.first.status)
	}
	return &finding{NotTried, why, []*answer{p.first}}
}

// newUnique returns a random value for the placeholder Unique.
func newUnique() string { return strings.ToLower(rand.Text()[:16]) }

// newKey returns a random UUID of version 4, a form that every profile accepts as a key.
func (p *probe) newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// with returns a request with the given body and key. The profile says whether the key is in the
// header or in the body. If the key is empty, the request has no key.
func (p *probe) with(key, body string) sending {
	switch {
	case key == "":
		return sending{body: body}
	case p.profile.inBody:
		var object map[string]any
		_ = json.Unmarshal([]byte(body), &object) // Test has checked that the body is an object
		object["request_id"] = key
		changed, _ := json.Marshal(object)
		return sending{body: string(changed)}
	}
	return sending{keys: []string{p.field(key)}, body: body}
}

// field returns the value of the header field for key: in quotes if the profile requires them.
func (p *probe) field(key string) string {
	if p.profile.quoted {
		return `"` + key + `"`
	}
	return key
}

// ask sends the request with the given key, and with the given value in place of Unique.
func (p *probe) ask(key, unique string) *answer {
	return p.send(p.ctx, p.with(key, p.request.body(unique)))
}

// askAll sends n identical requests at the same time.
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

// settled repeats a request until the server no longer answers 409 or 425, which report that an
// earlier request with the key is in progress. It returns the last answer. It gives up after 20
// repetitions, after the timeout, or when ctx ends.
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

// canTell reports whether a replay can be distinguished from an execution.
func (p *probe) canTell() bool { return p.differs || p.again.isMarked() }

// cannotTell returns the finding NotTried of a rule that can only be judged if canTell is true.
func (p *probe) cannotTell(seen ...*answer) finding {
	return finding{NotTried, "two requests under different keys have the same answer, and replays are not marked: a replay looks like an execution", seen}
}

// isRefusal returns "" if the answer has one of the given statuses. If the profile defines an error
// code for the rule, the body must have this code too. Otherwise isRefusal returns what is wrong.
func (p *probe) isRefusal(a *answer, statuses []int) (wrong string) {
	switch {
	case a.err != nil:
		return "there was no answer: " + a.shown.Error
	case !slices.Contains(statuses, a.status):
		return fmt.Sprintf("the answer was %d, not %s", a.status, strings.ReplaceAll(strings.Trim(fmt.Sprint(statuses), "[]"), " ", " or "))
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

// verdict returns a finding Broken for the reason wrong, or Kept if wrong is empty.
func verdict(wrong string, seen ...*answer) finding {
	if wrong != "" {
		return finding{Broken, wrong, seen}
	}
	return finding{Kept, "", seen}
}
