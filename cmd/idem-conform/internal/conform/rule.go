package conform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// repetition tests whether the repetition of the first request got the same answer as the first
// request.
func repetition(p *probe) finding {
	switch {
	case p.again.err != nil:
		return verdict("the repetition got no answer: "+p.again.shown.Error, p.first, p.again)
	case !p.again.same(p.first):
		return verdict("the repetition and the first request have different answers", p.first, p.again)
	case !p.canTell():
		return p.cannotTell(p.first, p.again)
	}
	return verdict("", p.first, p.again)
}

// replayMark returns a rule about the header field that marks a replay: the repetition must have
// the field with the value true, and the first answer must not have the field.
func replayMark(field string) func(*probe) finding {
	return func(p *probe) finding {
		switch {
		case p.first.header.Get(field) != "":
			return verdict("the first answer has "+field, p.first)
		case p.again.err != nil || p.again.header.Get(field) != "true":
			return verdict("the repetition does not have "+field+": true", p.first, p.again)
		}
		return verdict("", p.first, p.again)
	}
}

// afterACut closes the connection after it has sent a request, like a client that crashes or times
// out. Two later requests with the same key must succeed and get the same answer.
func afterACut(p *probe) finding {
	if !p.canTell() {
		return p.cannotTell()
	}
	key, unique := p.newKey(), newUnique()
	cut := p.with(key, p.request.body(unique))
	cut.cut = true
	gone := p.send(p.ctx, cut)
	second := p.settled(key, unique)
	if !second.ok() {
		return verdict(fmt.Sprintf("after the caller disconnected, the repetition was answered with %d", second.status), gone, second)
	}
	third := p.settled(key, unique)
	switch {
	case len(second.body) == 0 && len(p.first.body) > 0:
		return verdict("after the caller disconnected, the repetition has an empty body, unlike the answer to the first request", p.first, gone, second)
	case !third.same(second):
		return verdict("after the caller disconnected, two repetitions have different answers", gone, second, third)
	}
	return verdict("", gone, second, third)
}

// atOnce sends MaxAtOnce identical requests at the same time. At least one request must succeed.
// All requests that succeed must get the same answer, and the others must be refused with 409. A
// later repetition must get the answer of the successful requests.
func atOnce(p *probe) finding {
	if !p.canTell() {
		return p.cannotTell()
	}
	key, unique := p.newKey(), newUnique()
	answers := p.askAll(MaxAtOnce, key, unique)
	var executed *answer
	for _, a := range answers {
		switch {
		case a.ok() && executed == nil:
			executed = a
		case a.ok() && !a.same(executed):
			return verdict("two requests have different answers: both were executed", executed, a)
		}
	}
	if executed == nil {
		return verdict("no request succeeded", answers[0])
	}
	for _, a := range answers {
		if !a.ok() {
			if wrong := p.isRefusal(a, []int{http.StatusConflict}); wrong != "" {
				return verdict(wrong, executed, a)
			}
		}
	}
	// The answers to the simultaneous requests agree. A later repetition must get the same answer,
	// which shows that the server has stored it.
	if last := p.settled(key, unique); !last.same(executed) {
		return verdict("a later repetition has another answer", executed, last)
	}
	return verdict("", executed)
}

// otherRequest sends another body with the key of the first request. The server must refuse it.
func otherRequest(p *probe) finding {
	if !p.request.hasUnique() {
		return finding{NotTried, "the body has no " + Unique + ", so there is no other request", nil}
	}
	other := p.ask(p.key, newUnique())
	if other.same(p.first) {
		return verdict("the answer is that of the first request", p.first, other)
	}
	return verdict(p.isRefusal(other, p.profile.reused), p.first, other)
}

// failedRequest repeats a request that fails. The server must execute the repetition, and not
// replay the failure. An answer with the mark of a replay shows a replay. If the server does not
// mark replays, failedRequest assumes a replay if the repetition gets the same answer and a request
// with another key gets a different answer.
func failedRequest(p *probe) finding {
	if p.failing == "" {
		return finding{NotTried, "there is no request that fails: give its body with --failing-body", nil}
	}
	body := strings.ReplaceAll(p.failing, Unique, newUnique())
	key := p.newKey()
	failed := p.send(p.ctx, p.with(key, body))
	if failed.err != nil || failed.status < 400 {
		return finding{NotTried, "the request with the body of --failing-body did not fail", []*answer{failed}}
	}
	again := p.send(p.ctx, p.with(key, body))
	other := p.send(p.ctx, p.with(p.newKey(), body))
	switch {
	case again.err != nil:
		return verdict("the repetition got no answer: "+again.shown.Error, failed, again)
	case again.isMarked():
		return verdict("the failure was replayed", failed, again)
	case p.again.isMarked() || !again.same(failed):
		return verdict("", failed, again)
	case other.err != nil || other.same(failed):
		return p.cannotTell(failed, again, other)
	}
	return verdict("the repetition has the answer of the failed request, and a request under another key does not", failed, again, other)
}

// noKey sends a request without a key. The profile says whether the server must refuse or execute
// the request.
func noKey(p *probe) finding {
	a := p.ask("", newUnique())
	switch {
	case p.profile.required:
		return verdict(p.isRefusal(a, []int{http.StatusBadRequest}), a)
	case !a.ok():
		return verdict("the request was refused", a)
	}
	return verdict("", a)
}

// twoKeys sends a request with two Idempotency-Key header fields. The server must refuse it.
func twoKeys(p *probe) finding {
	s := p.with(p.newKey(), p.request.body(newUnique()))
	s.keys = append(s.keys, p.field(p.newKey()))
	a := p.send(p.ctx, s)
	return verdict(p.isRefusal(a, p.profile.refusedAs), a)
}

// emptyKey sends a request with an empty key. The server must refuse it.
func emptyKey(p *probe) finding {
	a := p.send(p.ctx, sending{keys: []string{p.field("")}, body: p.request.body(newUnique())})
	return verdict(p.isRefusal(a, p.profile.refusedAs), a)
}

// longKey sends a request with a key that is longer than the profile allows. The server must refuse
// it.
//
// The ietf profile has no maximum length. For this profile longKey sends a key of 5,000 characters,
// and the server may refuse it. If the server accepts the key, a repetition must get the same
// answer, and a key that differs only in its last character must count as another key.
func longKey(p *probe) finding {
	start := p.newKey()
	if !p.profile.quoted {
		a := p.ask(start+strings.Repeat("k", 256-len(start)), newUnique())
		return verdict(p.isRefusal(a, p.profile.refusedAs), a)
	}
	start += strings.Repeat("k", 4999-len(start))
	unique := newUnique()
	a := p.ask(start+"a", unique)
	switch {
	case a.err != nil:
		return verdict("there was no answer: "+a.shown.Error, a)
	case a.status >= 400 && a.status < 500:
		return verdict("", a)
	case !a.ok():
		return verdict(fmt.Sprintf("the answer was %d", a.status), a)
	}
	if again := p.ask(start+"a", unique); !again.same(a) {
		return verdict("the key was accepted, but the repetition has another answer", a, again)
	}
	// A server that truncates long keys would take this key for the first key, because the two
	// differ only at the end.
	other := p.ask(start+"b", unique)
	if other.isMarked() || p.differs && other.same(a) {
		return verdict("another key with the same beginning got the same answer", a, other)
	}
	return verdict("", a, other)
}

// documentedRefusal tests whether a refusal links to documentation, either with an RFC 9457 problem
// type that is a URL or with a Link header field. To get a refusal, documentedRefusal sends a
// request without a key. If the server executes that request, documentedRefusal sends another body
// with the key of the first request.
func documentedRefusal(p *probe) finding {
	a := p.ask("", newUnique())
	if a.ok() && p.request.hasUnique() {
		a = p.ask(p.key, newUnique())
	}
	if a.err != nil || a.status < 400 {
		return finding{NotTried, "no request was refused", []*answer{a}}
	}
	var problem struct {
		Type string `json:"type"`
	}
	isProblem := strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") && json.Unmarshal(a.body, &problem) == nil && strings.Contains(problem.Type, "://")
	if !isProblem && a.header.Get("Link") == "" {
		return verdict("the refusal has neither an RFC 9457 problem type that is a link nor a Link field", a)
	}
	return verdict("", a)
}

// echo tests whether every answer has the key of its request in the Idempotency-Key header field.
func echo(p *probe) finding {
	seen := []*answer{p.first, p.again}
	if p.request.hasUnique() {
		seen = append(seen, p.ask(p.key, newUnique()))
	}
	for _, a := range seen {
		if got := a.header.Values(keyField); a.err != nil || len(got) != 1 || got[0] != p.key {
			return verdict("an answer does not have the key", a)
		}
	}
	return verdict("", seen...)
}

// sameJSON repeats the first request with equivalent JSON: first with other white space and another
// order of members, then with other spellings of numbers and strings. Each repetition must get the
// answer of the first request.
func sameJSON(p *probe) finding {
	body := []byte(p.request.body(p.unique))
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return finding{NotTried, "the body is not a JSON object", nil}
	}
	ordered, _ := json.Marshal(object) // cannot fail, because the values are valid JSON
	var spaced bytes.Buffer
	_ = json.Indent(&spaced, ordered, "", "\t")
	seen := []*answer{p.first}
	for _, spelling := range []struct{ what, body string }{
		{"other white space and another order of members", spaced.String()},
		{"1.0 for 1, and escaped letters", respell(body)},
	} {
		a := p.send(p.ctx, p.with(p.key, spelling.body))
		seen = append(seen, a)
		if !a.same(p.first) {
			return verdict("with "+spelling.what+" the answer is not that of the first request", p.first, a)
		}
	}
	if !p.canTell() {
		return p.cannotTell(seen...)
	}
	return verdict("", seen...)
}

// respell returns a JSON body with the same meaning: each integer is written with a fraction, such
// as 1.0, and the first letter of each string as an escape.
func respell(body []byte) string {
	token := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?`)
	integer, letter := regexp.MustCompile(`^-?[0-9]{1,15}$`), regexp.MustCompile(`^"[a-zA-Z]`)
	return token.ReplaceAllStringFunc(string(body), func(t string) string {
		switch {
		case integer.MatchString(t):
			return t + ".0"
		case letter.MatchString(t):
			return fmt.Sprintf(`"\u%04x%s`, t[1], t[2:])
		}
		return t
	})
}

// malformedID sends a request whose request_id is not a UUID. The server must refuse it.
func malformedID(p *probe) finding {
	a := p.ask("not-a-uuid", newUnique())
	return verdict(p.isRefusal(a, p.profile.refusedAs), a)
}

// principal repeats the first request with the credential of another principal. The other principal
// must not get the stored answer of the first principal.
func principal(p *probe) finding {
	if p.other == nil {
		return finding{NotTried, "there is no other principal: give a credential with --other-principal", nil}
	}
	s := p.with(p.key, p.request.body(p.unique))
	s.asOther = true
	a := p.send(p.ctx, s)
	switch {
	case a.isMarked():
		return verdict("the other principal got a replay", p.first, a)
	case a.same(p.first) && p.differs:
		return verdict("the other principal got the answer of the first", p.first, a)
	case a.same(p.first) && !p.again.isMarked():
		return p.cannotTell(p.first, a)
	}
	return verdict("", p.first, a)
}
