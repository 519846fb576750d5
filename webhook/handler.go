package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// HandlerFunc gives an event its effect, on tx. Its rules are those of inbox.Handle: it may be run again, an error undoes
// what it has written and counts as an attempt, and the context is that of r.
//
// The signature vouches for m and for nothing else of r, which is the request, with its body as it came. Fields of its header
// that the scheme does not sign, such as X-GitHub-Event, are there to be read, and not proven.
type HandlerFunc func(tx pgx.Tx, r *http.Request, m inbox.Message) error

// HandlerConfig says how a Handler behaves. Consumer, Source and Verifier have to be set.
type HandlerConfig struct {
	// Consumer is who takes the events, and Source the name of this endpoint. An event is one of its source, and has its
	// effect once for each consumer. Two providers, or two accounts with one, are two sources.
	Consumer, Source string

	// Verifier is the signature scheme.
	Verifier Verifier

	// Tolerance is how far the signed time may be from this machine's clock, in the past or in the future. The default is 5
	// minutes. It bounds for how long a delivery that a stranger has got hold of can be repeated.
	Tolerance time.Duration

	// MaxBody limits the body of a request, in bytes: above it, 413. The body is held in memory, and a stranger who knows the URL
	// can send one. The default is 1 MiB; GitHub sends up to 25 MB.
	MaxBody int64

	// Inbox are options for inbox.Handle: attempts, pauses, retention. Unless inbox.WithCircuit is among them there is no circuit: a
	// provider that is put off comes again when it likes, which may be hours later.
	Inbox []inbox.Option

	// Logger is told why a request was refused and why an event has had no effect. The default is slog.Default().
	Logger *slog.Logger
}

// Handler answers the requests of one provider at one endpoint. It is safe for concurrent use.
type Handler struct {
	pool   *pgxpool.Pool
	config HandlerConfig
	handle HandlerFunc
	now    func() time.Time
}

// NewHandler returns a Handler that gives each event its effect by handle.
func NewHandler(pool *pgxpool.Pool, config HandlerConfig, handle HandlerFunc) (*Handler, error) {
	switch {
	case pool == nil || handle == nil:
		return nil, errors.New("webhook: NewHandler: the pool or the function is nil")
	case !validName(config.Consumer) || !validName(config.Source):
		return nil, errors.New("webhook: HandlerConfig: Consumer and Source have 1 to 255 bytes of text")
	case config.Verifier == nil:
		return nil, errors.New("webhook: HandlerConfig.Verifier has to be set: a stranger who knows the URL could deliver anything")
	case config.Tolerance < 0 || config.MaxBody < 0:
		return nil, fmt.Errorf("webhook: HandlerConfig: Tolerance %v or MaxBody %d is negative", config.Tolerance, config.MaxBody)
	}
	if err := inbox.CheckOptions(config.Inbox...); err != nil {
		return nil, fmt.Errorf("webhook: HandlerConfig.Inbox: %w", err)
	}
	if config.Tolerance == 0 {
		config.Tolerance = 5 * time.Minute
	}
	if config.MaxBody == 0 {
		config.MaxBody = 1 << 20
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	config.Inbox = append([]inbox.Option{inbox.WithCircuit(0, 0)}, config.Inbox...)
	config.Logger = config.Logger.With("consumer", config.Consumer, "source", config.Source)
	return &Handler{pool, config, handle, time.Now}, nil
}

// ServeHTTP answers 200 if the event has had its effect, now or earlier, and it is committed, or if it is a dead letter.
//
// A request without a good signature, or with one that is too old, is 401. An event without an ID is 400, and one whose ID
// is known from an event that said something else is 409. Everything else is 503 with a Retry-After: nothing is committed,
// or it is not known to be.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := answer{w, r, h.config.Logger}
	if r.Method != http.MethodPost {
		a.wrongMethod()
		return
	}
	body, err := h.read(w, r)
	if err != nil {
		a.badBody(err)
		return
	}
	event, err := h.verify(r, body)
	switch {
	case err != nil:
		a.unverified(err)
	case !validName(event.ID):
		a.withoutID()
	default:
		a.about(event).taken(h.take(r, event, body))
	}
}

func (h *Handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > h.config.MaxBody {
		return nil, &http.MaxBytesError{Limit: h.config.MaxBody}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
}

var errTime = errors.New("webhook: the signed time is too far from now")

// verify says whether an event was delivered, and that it was not delivered long ago.
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

// take gives the event its effect, unless it has had it.
func (h *Handler) take(r *http.Request, event Event, body []byte) (inbox.Outcome, error) {
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
