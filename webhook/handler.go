package webhook

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// HandlerFunc applies the effect of an event, in the transaction tx. The rules of inbox.Handle
// apply: the function may run again, and if it returns an error, its writes are rolled back and the
// attempt counts. Its context is the context of r.
//
// r is the request with its body. The signature covers the body, and so the Payload of m. It covers
// the ID and the Type of m only if the provider signs them, which GitHub does not do. The other
// header fields of r are not verified.
type HandlerFunc func(tx pgx.Tx, r *http.Request, m inbox.Message) error

// HandlerConfig configures a Handler. Consumer, Source and Verifier are required.
type HandlerConfig struct {
	// Consumer is the name of the consumer in the inbox, and Source is the name of this endpoint. An
	// event has its effect once for each consumer and source. Use a separate source for each provider,
	// and for each of several accounts with one provider.
	Consumer, Source string

	// Verifier is the signature scheme.
	Verifier Verifier

	// Tolerance is how far the signed time may differ from the clock of this machine. The default is 5
	// minutes. It limits how long an attacker can repeat a copied delivery.
	Tolerance time.Duration

	// MaxBody is the maximum size of a request body, in bytes. A request with a larger body is
	// answered with 413. The body is in memory before the signature is verified, so anyone who knows
	// the URL can send a body of this size. The default is 1 MiB; GitHub sends up to 25 MB.
	MaxBody int64

	// Inbox contains options for inbox.Handle, such as attempts, backoff and retention. The circuit
	// breaker is off unless the options contain inbox.WithCircuit, because a provider may take hours
	// to repeat an event that a circuit breaker has postponed.
	Inbox []inbox.Option

	// Logger logs why a request was refused or an event had no effect. The default is
	// slog.Default().
	Logger *slog.Logger
}

// Handler handles the requests of one provider at one endpoint. It is safe for concurrent use.
type Handler struct {
	pool   *pgxpool.Pool
	config HandlerConfig
	handle HandlerFunc
	now    func() time.Time
}

// NewHandler returns a Handler that calls handle for each event. It fails if the config is invalid.
func NewHandler(pool *pgxpool.Pool, config HandlerConfig, handle HandlerFunc) (*Handler, error) {
	switch {
	case pool == nil || handle == nil:
		return nil, errors.New("webhook: NewHandler: the pool or the function is nil")
	case !isValidName(config.Consumer) || !isValidName(config.Source):
		return nil, errors.New("webhook: HandlerConfig: Consumer and Source must have 1 to 255 bytes " +
			"without control characters")
	case config.Verifier == nil:
		return nil, errors.New("webhook: HandlerConfig.Verifier is nil: anyone who knows the URL could deliver events")
	case config.Tolerance < 0 || config.MaxBody < 0:
		return nil, errors.New("webhook: HandlerConfig: Tolerance or MaxBody is negative")
	}
	if err := inbox.CheckOptions(config.Inbox...); err != nil {
		return nil, fmt.Errorf("webhook: HandlerConfig.Inbox: %w", err)
	}
	config.Tolerance = cmp.Or(config.Tolerance, 5*time.Minute)
	config.MaxBody = cmp.Or(config.MaxBody, 1<<20)
	config.Logger = cmp.Or(config.Logger, slog.Default()).With("consumer", config.Consumer, "source", config.Source)
	config.Inbox = append([]inbox.Option{inbox.WithCircuit(0, 0)}, config.Inbox...)
	return &Handler{pool, config, handle, time.Now}, nil
}

// isValidName reports whether text is valid as a name in the inbox. The ID of an event is checked
// because it may come from a header field that is not signed.
func isValidName(text string) bool {
	return text != "" && len(text) <= 255 && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// ServeHTTP handles a delivery. The status of the response is
//
//   - 200 if the effect of the event is committed, now or earlier, or if the event is a dead
//     letter;
//   - 401 if the signature is missing, invalid or too old;
//   - 400 if the body is incomplete or the event has no valid ID;
//   - 409 if another event with different contents has the same ID;
//   - 405 if the method is not POST, and 413 if the body is too large;
//   - 503 with a Retry-After in all other cases: the effect is not committed, or the outcome of the
//     commit is unknown.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "webhooks must use POST", http.StatusMethodNotAllowed)
		return
	}
	a := answer{w, r, h.config.Logger}
	body, err := h.read(w, r)
	if _, isLarge := errors.AsType[*http.MaxBytesError](err); isLarge {
		a.log(slog.LevelWarn, "webhook: the body is larger than HandlerConfig.MaxBody", err)
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "the body is incomplete", http.StatusBadRequest)
		return
	}
	event, err := h.verify(r, body)
	switch {
	case err != nil:
		// The response does not show whether the signature is invalid or too old, because the sender may
		// be an attacker.
		a.log(slog.LevelWarn, "webhook: a request was refused", err)
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case !isValidName(event.ID):
		a.log(slog.LevelWarn, "webhook: an event has no valid id", nil)
		http.Error(w, "the event has no valid id", http.StatusBadRequest)
	default:
		outcome, err := h.apply(r, event, body)
		a.logger = a.logger.With("message", event.ID)
		a.outcome(outcome, err)
	}
}

func (h *Handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > h.config.MaxBody {
		return nil, &http.MaxBytesError{Limit: h.config.MaxBody}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
}

var errTime = errors.New("webhook: the signed time is too far from the clock")

// verify returns the event of a request if its signature is valid and its time is within the
// Tolerance.
func (h *Handler) verify(r *http.Request, body []byte) (Event, error) {
	event, err := h.config.Verifier.Verify(r, body)
	if err != nil || event.SentAt.IsZero() {
		return event, err
	}
	if age := h.now().Sub(event.SentAt); age.Abs() > h.config.Tolerance {
		return Event{}, fmt.Errorf("%w: by %v", errTime, age.Round(time.Second))
	}
	return event, nil
}

// apply applies the effect of an event, unless it is a duplicate.
func (h *Handler) apply(r *http.Request, event Event, body []byte) (inbox.Outcome, error) {
	message := inbox.Message{Source: h.config.Source, ID: event.ID, Type: event.Type, Payload: event.Payload}
	if message.Payload == nil {
		message.Payload = body
	}
	return inbox.Handle(r.Context(), h.pool, h.config.Consumer, message, func(tx pgx.Tx) error {
		again := r.WithContext(inbox.Context(tx))
		again.Body = io.NopCloser(bytes.NewReader(body))
		return h.handle(tx, again, message)
	}, h.config.Inbox...)
}

// answer writes the response to a request, and logs the reason. It logs the ID of an event only if
// the request was verified.
type answer struct {
	w      http.ResponseWriter
	r      *http.Request
	logger *slog.Logger
}

// outcome answers the request of an event that was passed to the inbox. The Outcome is valid even
// if err is not nil.
func (a answer) outcome(outcome inbox.Outcome, err error) {
	reason := cmp.Or(outcome.Err, err)
	switch {
	case outcome.State == inbox.Done, outcome.State == inbox.Duplicate:
		a.w.WriteHeader(http.StatusOK)
	case outcome.State == inbox.Dead && errors.Is(reason, inbox.ErrMismatch):
		a.log(slog.LevelError, "webhook: an event has the id of another event", reason)
		http.Error(a.w, "this id belongs to another event", http.StatusConflict)
	case outcome.State == inbox.Dead:
		a.log(slog.LevelError, "webhook: an event was dead-lettered", reason)
		a.w.WriteHeader(http.StatusOK)
	case a.r.Context().Err() != nil:
		a.log(slog.LevelDebug, "webhook: the provider has closed the connection", reason)
		a.retryLater(outcome.RetryAt)
	default:
		a.log(slog.LevelWarn, "webhook: an event has had no effect yet", reason)
		a.retryLater(outcome.RetryAt)
	}
}

// retryLater asks the provider to repeat the event at the given time. Retry-After is in whole
// seconds, rounded up.
func (a answer) retryLater(at time.Time) {
	wait := max(time.Until(at), time.Second)
	a.w.Header().Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	http.Error(a.w, "not done yet", http.StatusServiceUnavailable)
}

func (a answer) log(level slog.Level, text string, err error) {
	a.logger.Log(a.r.Context(), level, text, "error", err)
}
