package webhook

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/idem-go/idem/inbox"
)

// answer tells the provider, and the log, the outcome of a request. The log has the ID of an event that is verified.
type answer struct {
	w   http.ResponseWriter
	r   *http.Request
	log *slog.Logger
}

// about returns an answer whose log names an event.
func (a answer) about(e Event) answer {
	a.log = a.log.With("message", e.ID)
	return a
}

// validName reports whether the inbox can know an event by its ID, which may come from a field that is not signed.
func validName(id string) bool {
	return id != "" && len(id) <= 255 && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

func (a answer) wrongMethod() {
	a.w.Header().Set("Allow", http.MethodPost)
	http.Error(a.w, "webhooks are sent by POST", http.StatusMethodNotAllowed)
}

func (a answer) badBody(err error) {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		a.tell(slog.LevelWarn, "a webhook is too large", err)
		http.Error(a.w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}
	http.Error(a.w, "the body did not arrive as a whole", http.StatusBadRequest)
}

// unverified tells a stranger nothing: a bad signature and one that is too old have the same answer.
func (a answer) unverified(err error) {
	a.tell(slog.LevelWarn, "a webhook was refused", err)
	http.Error(a.w, "unauthorized", http.StatusUnauthorized)
}

func (a answer) withoutID() {
	a.tell(slog.LevelWarn, "an event has no valid id", nil)
	http.Error(a.w, "the event has no valid id", http.StatusBadRequest)
}

// taken says the outcome of an event. What the inbox says of it holds beside an error, too.
func (a answer) taken(outcome inbox.Outcome, err error) {
	why := cmp.Or(outcome.Err, err)
	switch {
	case outcome.State == inbox.Done, outcome.State == inbox.Duplicate:
		a.w.WriteHeader(http.StatusOK)
	case outcome.State == inbox.Dead && errors.Is(why, inbox.ErrMismatch):
		a.tell(slog.LevelError, "an event has the id of another", why)
		http.Error(a.w, "this id belongs to another event", http.StatusConflict)
	case outcome.State == inbox.Dead:
		a.tell(slog.LevelError, "an event is a dead letter", why)
		a.w.WriteHeader(http.StatusOK)
	case a.r.Context().Err() != nil:
		a.tell(slog.LevelDebug, "the provider has gone", why)
		a.later(outcome.RetryAt)
	default:
		a.tell(slog.LevelWarn, "an event has had no effect yet", why)
		a.later(outcome.RetryAt)
	}
}

// later asks the provider to come back, in whole seconds, rounded up.
func (a answer) later(at time.Time) {
	wait := max(time.Until(at), time.Second)
	a.w.Header().Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	http.Error(a.w, "not done yet", http.StatusServiceUnavailable)
}

func (a answer) tell(level slog.Level, text string, err error) {
	a.log.Log(a.r.Context(), level, text, "error", err)
}
