package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/inbox"
)

// What a provider is told when nothing better is known.
const comeBack = 5 * time.Second

// validID reports whether an ID can be a key of the inbox. It may come from a field that nobody has signed.
func validID(id string) bool {
	return id != "" && len(id) <= 255 && utf8.ValidString(id) && !strings.ContainsRune(id, 0)
}

func (h *Handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		h.log(r.Context(), slog.LevelWarn, "a webhook is too large", err)
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}
	http.Error(w, "the body did not arrive as a whole", http.StatusBadRequest)
}

// refuse tells a stranger nothing: a bad signature and one that is too old have the same answer.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.log(r.Context(), slog.LevelWarn, "a webhook was refused", err)
	http.Error(w, "unauthorized", http.StatusUnauthorized)
}

// answer says what has become of an event.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, outcome inbox.Outcome, err error) {
	ctx := r.Context()
	switch {
	case errors.Is(err, inbox.ErrMismatch):
		h.log(ctx, slog.LevelError, "an event differs from what it was", err)
		http.Error(w, "this event was another", http.StatusConflict)
	case err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		h.log(ctx, slog.LevelDebug, "the provider has gone", err)
		later(w, comeBack)
	case err != nil:
		h.log(ctx, slog.LevelError, "an event could not be taken", err)
		later(w, comeBack)
	case outcome.State == inbox.Done, outcome.State == inbox.Duplicate:
		w.WriteHeader(http.StatusOK)
	case outcome.State == inbox.Dead:
		h.log(ctx, slog.LevelError, "an event is a dead letter", outcome.Err)
		w.WriteHeader(http.StatusOK)
	default:
		h.log(ctx, slog.LevelWarn, "an event has had no effect yet", outcome.Err)
		later(w, time.Until(outcome.RetryAt))
	}
}

// later asks the provider to come back, in whole seconds, rounded up.
func later(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, (wait+time.Second-1)/time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	http.Error(w, "not done yet", http.StatusServiceUnavailable)
}
