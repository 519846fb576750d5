package idemtest

import (
	"errors"
	"regexp"
	"strings"

	"github.com/idem-go/idem"
)

// repeats checks that a duplicate got the same answer as the first request. Like the other checks
// here, it reports the broken promise and returns false.
func (u *suite) repeats(when string, first, duplicate answer) bool {
	u.Helper()
	switch {
	case duplicate.fate != done:
		return u.breaks(sameAsked, "%s it was answered %s", when, duplicate.brief)
	case duplicate.text == first.text:
		return u.keepsFields(when, first, duplicate)
	case duplicate.empty && !first.empty:
		return u.breaks(fullAnswer, "%s it was answered %s, the first time %s", when, duplicate.brief, first.brief)
	}
	return u.breaks(sameAnswer, "%s it was answered %s, the first time %s", when, duplicate.brief, first.brief)
}

// unchanged checks that duplicates have added neither a record nor an effect. base are the counts
// before the first request, one those after it, now the current ones. A new record means that the
// duplicate had another key.
func (u *suite) unchanged(when string, base, one, now books) bool {
	u.Helper()
	switch {
	case now.behind > one.behind:
		return u.breaks(oneKey, "%s there was one record more, and %d effects instead of %d", when, now.effects-base.effects, u.effects)
	case now.effects != one.effects:
		return u.breaks(oneEffect, "%s there were %d effects instead of %d, under one record", when, now.effects-base.effects, u.effects)
	}
	return true
}

// truthful checks the effects against the records, and both against the answer that the caller
// received.
//
// For one transaction the rules are: no effect without a record, no record without all effects, and
// no success without a record. An execution of several transactions (an operation, or a function
// with several records) may be half done unless its caller was answered with success. The order of
// the cases matters: each case assumes that the earlier ones do not apply.
func (u *suite) truthful(what string, base, now books, told answer) bool {
	u.Helper()
	effects, before, behind := now.effects-base.effects, now.before-base.before, now.behind-base.behind
	several := u.steps || u.records > 1
	switch {
	case effects > u.effects && behind > u.records:
		return u.breaks(oneKey, "%s: there were %d effects instead of %d, and %d records", what, effects, u.effects, behind)
	case effects > u.effects:
		return u.breaks(u.repeated, "%s: there were %d effects instead of %d", what, effects, u.effects)
	case effects > 0 && behind == 0 && !u.steps && (!several || told.fate == done):
		return u.breaks(inTransaction, "%s: there was an effect, and no record", what)
	case effects == u.effects, several && told.fate != done:
		return true
	case before > 0 && told.fate == refused:
		return u.breaks(failureNotFinal, "%s: this answer was recorded", what)
	case before > 0:
		return u.breaks(noEffectLost, "%s: there was a record, and %d effects instead of %d", what, effects, u.effects)
	case told.fate == done:
		return u.breaks(u.early, "%s: there was no record, and %d effects instead of %d", what, effects, u.effects)
	}
	return true
}

// answered reports a success as the answer to another payload under the same key.
func answered(u *suite, _ *subject, given answer) {
	u.Helper()
	if given.fate == done {
		u.breaks(payloadHashed, "it was answered %s", given.brief)
	}
}

// ofExchange matches the names of header fields with the id of one exchange, such as X-Request-Id.
// A duplicate may lack them.
var ofExchange = regexp.MustCompile("(?i)request|correlation|trace|span|session")

// keepsFields checks that a duplicate has each header field of the first answer whose name ends in
// -Id. The values may differ.
func (u *suite) keepsFields(when string, first, duplicate answer) bool {
	u.Helper()
	for name := range first.fields {
		if _, has := duplicate.fields[name]; !has && strings.HasSuffix(name, "-Id") && !ofExchange.MatchString(name) {
			return u.breaks(sameAnswer, "%s its answer had no header field %s, the first time it had one", when, name)
		}
	}
	return true
}

// brokenTx returns the promise that a function broke by ending its transaction or by ignoring an
// error that aborted it. An HTTP response does not say which of the two happened, so brokenTx asks
// the proxy.
func brokenTx(s *subject, given answer) (broken promise, is bool) {
	switch {
	case errors.Is(given.err, idem.ErrTxAborted), given.err == errBrokenTx && s.proxy.Aborted():
		return errorsKept, true
	case errors.Is(given.err, idem.ErrTxEnded), given.err == errBrokenTx:
		return txKept, true
	}
	return promise{}, false
}
