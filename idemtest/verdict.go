package idemtest

import (
	"errors"
	"regexp"
	"strings"

	"github.com/idem-go/idem"
)

// repeats holds the answer of a duplicate against that of the first.
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

// unchanged holds what duplicates have done against what the first has.
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

// truthful holds the books against each other and against what the caller was told. An execution of several transactions may be half
// done as long as its caller was not told of success.
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
		return u.breaks(failureNotFinal, "%s: that was on record", what)
	case before > 0:
		return u.breaks(noEffectLost, "%s: there was a record, and %d effects instead of %d", what, effects, u.effects)
	case told.fate == done:
		return u.breaks(u.early, "%s: there was no record, and %d effects instead of %d", what, effects, u.effects)
	}
	return true
}

// answered judges the answer to another payload under the same key.
func answered(u *suite, _ *subject, given answer) {
	u.Helper()
	if given.fate == done {
		u.breaks(payloadHashed, "it was answered %s", given.brief)
	}
}

// ofExchange are the names of ids that belong to one exchange: a duplicate has its own, or none.
var ofExchange = regexp.MustCompile("(?i)request|correlation|trace|span|session")

// keepsFields holds the ids in the header of a duplicate against those of the first.
func (u *suite) keepsFields(when string, first, duplicate answer) bool {
	u.Helper()
	for name := range first.fields {
		if _, has := duplicate.fields[name]; !has && strings.HasSuffix(name, "-Id") && !ofExchange.MatchString(name) {
			return u.breaks(sameAnswer, "%s its answer had no header field %s, the first time it had one", when, name)
		}
	}
	return true
}

// brokenTx returns the promise that a function has broken whose transaction was not committed because of it.
func brokenTx(s *subject, given answer) (broken promise, is bool) {
	switch {
	case errors.Is(given.err, idem.ErrTxAborted), given.err == errBrokenTx && s.proxy.Aborted():
		return errorsKept, true
	case errors.Is(given.err, idem.ErrTxEnded), given.err == errBrokenTx:
		return txKept, true
	}
	return promise{}, false
}
