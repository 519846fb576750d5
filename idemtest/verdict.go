package idemtest

import (
	"errors"
	"regexp"
	"strings"

	"github.com/idem-go/idem"
)

// checkReplay checks that a duplicate got the same answer as the first request. Otherwise it
// reports the broken promise and returns false.
func (u *suite) checkReplay(when string, first, duplicate answer) bool {
	u.Helper()
	switch {
	case duplicate.outcome != done:
		return u.breaks(sameAsked, "%s it was answered %s", when, duplicate.brief)
	case duplicate.text == first.text:
		return u.checkFields(when, first, duplicate)
	case duplicate.empty && !first.empty:
		return u.breaks(fullAnswer, "%s it was answered %s, the first time %s", when, duplicate.brief, first.brief)
	}
	return u.breaks(sameAnswer, "%s it was answered %s, the first time %s", when, duplicate.brief, first.brief)
}

// checkUnchanged checks that duplicates have added neither a record nor an effect. The parameter
// base has the counts before the first request, one has the counts after it, and now has the
// current counts. A new record means that the code gave the duplicate another key or scope.
func (u *suite) checkUnchanged(when string, base, one, now counts) bool {
	u.Helper()
	switch {
	case now.after > one.after:
		return u.breaks(oneKey, "%s there was another record, and %d effects instead of %d", when, now.effects-base.effects, u.effects)
	case now.effects != one.effects:
		return u.breaks(oneEffect, "%s there were %d effects instead of %d, under one record", when, now.effects-base.effects, u.effects)
	}
	return true
}

// checkCounts checks that the numbers of effects and records match each other and the answer that
// the caller received.
//
// For one transaction the rules are: no effect without a record, no record without all effects, and
// no success without a record. An execution of several transactions (an operation, or a function
// with several records) may be half done, as long as its caller was not answered with success. The
// order of the cases matters: each case assumes that the earlier ones do not apply.
func (u *suite) checkCounts(what string, base, now counts, received answer) bool {
	u.Helper()
	effects, before, after := now.effects-base.effects, now.before-base.before, now.after-base.after
	several := u.steps || u.records > 1
	switch {
	case effects > u.effects && after > u.records:
		return u.breaks(oneKey, "%s: there were %d effects instead of %d, and %d records", what, effects, u.effects, after)
	case effects > u.effects:
		return u.breaks(u.repeated, "%s: there were %d effects instead of %d", what, effects, u.effects)
	case effects > 0 && after == 0 && !u.steps && (!several || received.outcome == done):
		return u.breaks(inTransaction, "%s: there was an effect, and no record", what)
	case effects == u.effects, several && received.outcome != done:
		return true
	case before > 0 && received.outcome == refused:
		return u.breaks(failureNotFinal, "%s: this answer was recorded", what)
	case before > 0:
		return u.breaks(noEffectLost, "%s: there was a record, and %d effects instead of %d", what, effects, u.effects)
	case received.outcome == done:
		return u.breaks(u.early, "%s: there was no record, and %d effects instead of %d", what, effects, u.effects)
	}
	return true
}

// answered reports a broken promise if another payload under the same key was answered with
// success.
func answered(u *suite, _ *subject, given answer) {
	u.Helper()
	if given.outcome == done {
		u.breaks(payloadHashed, "it was answered %s", given.brief)
	}
}

// perRequest matches the names of header fields that identify a single request and not its effect,
// such as X-Request-Id. The answer to a duplicate may lack these fields.
var perRequest = regexp.MustCompile("(?i)request|correlation|trace|span|session")

// checkFields checks that a duplicate has each header field of the first answer whose name ends in
// -Id. The values may differ. Such a field often names the object that the request has created. A
// handler that sets the field outside of the response that idem records loses the field in a
// replay.
func (u *suite) checkFields(when string, first, duplicate answer) bool {
	u.Helper()
	for name := range first.fields {
		if _, has := duplicate.fields[name]; !has && strings.HasSuffix(name, "-Id") && !perRequest.MatchString(name) {
			return u.breaks(sameAnswer, "%s its answer lacked the header field %s, which the first answer had", when, name)
		}
	}
	return true
}

// brokenTx returns the promise that a function broke by ending its transaction, or by ignoring an
// error that aborted the transaction. An HTTP response does not say which of the two happened, so
// brokenTx asks the proxy.
func brokenTx(s *subject, given answer) (broken promise, is bool) {
	switch {
	case errors.Is(given.err, idem.ErrTxAborted), given.err == errBrokenTx && s.proxy.Aborted():
		return errorsKept, true
	case errors.Is(given.err, idem.ErrTxEnded), given.err == errBrokenTx:
		return txKept, true
	}
	return promise{}, false
}
