package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// operationStatus is the status of an operation for its client.
type operationStatus struct {
	ID         string       `json:"operation_id"`
	Name       string       `json:"name"`
	State      string       `json:"state"`
	Undoing    bool         `json:"undoing,omitempty"`
	Step       string       `json:"step,omitempty"` // the step in progress, or the step for which the operation waits
	Since      time.Time    `json:"since,omitzero"`
	Attempts   int          `json:"attempts,omitempty"`
	WaitsFor   string       `json:"waits_for,omitempty"`
	WaitsUntil time.Time    `json:"waits_until,omitzero"`
	Reason     string       `json:"reason,omitempty"`      // the reason code of a parked operation
	ReasonText string       `json:"reason_text,omitempty"` // the reason as a sentence
	Steps      []stepStatus `json:"steps,omitzero"`
	Result     *result      `json:"result,omitempty"` // the answer, if the operation has ended with an answer
	retryAfter time.Duration
	hash       idem.Hash
	scope, key string
}

// result is the answer of an operation.
type result struct {
	Status int                 `json:"status"`
	Header map[string][]string `json:"header,omitempty"`
	Body   json.RawMessage     `json:"body,omitempty"`        // the body, if it is JSON
	Bytes  []byte              `json:"body_base64,omitempty"` // the body, if it is not JSON
}

func newResult(r idem.Response) *result {
	shown := &result{Status: r.Status, Header: r.Header}
	if json.Valid(r.Body) && utf8.Valid(r.Body) {
		shown.Body = r.Body
	} else {
		shown.Bytes = r.Body
	}
	return shown
}

type stepStatus struct {
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	Outcome    string    `json:"outcome"`
	RecordedAt time.Time `json:"recorded_at"`
}

// statusLimit is the time limit for reading a status after the context of the request has ended.
const statusLimit = time.Second

// statusOf returns the status of the operation in progress whose scope and key are those of c, or
// nil if no such operation is in progress. It returns idem.ErrMismatch if the operation was started
// by a different request.
func (h *OperationHandler) statusOf(r *http.Request, c *claim) (*operationStatus, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusLimit)
		defer cancel()
		ctx = bounded
	}
	entry, err := idem.Lookup(ctx, h.pool, c.scope, c.key)
	if err != nil || entry.State != idem.StateProcessing || entry.ExecutionID == "" {
		return nil, err
	}
	status, err := h.load(ctx, entry.ExecutionID)
	if err == nil && status != nil && status.hash != c.hash {
		return nil, idem.ErrMismatch
	}
	return status, err
}

// load returns the status of an operation, or nil if there is no operation with this ID.
func (h *OperationHandler) load(ctx context.Context, id string) (*operationStatus, error) {
	engine := txn.Engine{Pool: h.pool, Limits: txn.DefaultLimits}
	find, show, steps := db.FindOperation{OperationID: id}, db.ShowOperation{OperationID: id}, db.ListSteps{OperationID: id}
	if err := engine.Query(ctx, &find, &show, &steps); err != nil || !find.Found || !show.Found {
		return nil, err
	}
	status := &operationStatus{
		ID: id, Name: show.Name, State: string(show.State), Steps: []stepStatus{}, scope: show.Scope, key: find.Key, hash: show.Hash,
	}
	if h.hideSteps {
		defer status.hideSteps()
	}
	for _, s := range steps.Rows {
		if s.Kind != db.EndStep {
			status.Steps = append(status.Steps, stepStatus{string(s.Kind), withoutNumber(s.Name), string(s.Outcome), s.RecordedAt})
		}
	}
	if show.State != db.OperationRunning && show.State != db.OperationParked {
		return status, nil
	}
	status.Undoing, status.Step, status.Since, status.Attempts = show.Undoing, withoutNumber(show.Step), show.Since, show.Attempts
	status.retryAfter = time.Second
	wakeAt := show.WaitsUntil()
	switch pause := wakeAt.Sub(show.LoadedAt); {
	case show.State == db.OperationRunning && wakeAt.IsZero(): // the operation waits for a child operation
		status.WaitsFor = status.Step
	case show.State == db.OperationParked:
		status.retryAfter, status.Step = time.Minute, show.ReasonStep
		if h.reasons {
			status.Reason, status.ReasonText = show.Reason, show.ReasonText
		}
	case pause > 0:
		status.WaitsFor, status.WaitsUntil = status.Step, wakeAt
		status.retryAfter = min(max(pause, time.Second), time.Minute)
	}
	return status, nil
}

func (s *operationStatus) hideSteps() { s.Step, s.WaitsFor, s.ReasonText, s.Steps = "", "", "", nil }

var errNoResult = errors.New("idemhttp: the answer of an operation is not recorded any more")

// addResult adds the recorded answer to the status of an operation that has ended. It adds nothing
// if the operation has ended without an answer, if the answer has expired, or if Config.Authorize
// refuses this caller.
func (h *OperationHandler) addResult(x *exchange, status *operationStatus) error {
	if status.State != string(db.OperationCompleted) && status.State != string(db.OperationFailed) {
		return nil
	}
	ctx := x.r.Context()
	entry, err := idem.Lookup(ctx, h.pool, status.scope, status.key)
	if err != nil || entry.ExecutionID != status.ID || entry.State == idem.StateProcessing {
		return err
	}
	options := append(slices.Clip(h.doOptions), idem.WithReplayLikely())
	answer, err := idem.Do(ctx, h.pool, status.scope, status.key, status.hash, func(pgx.Tx) (idem.Response, error) {
		return idem.Response{}, errNoResult // the answer has expired since Lookup
	}, options...)
	switch {
	case errors.Is(err, errNoResult):
		return nil
	case err != nil:
		return err
	case h.config.Authorize == nil || h.config.Authorize(x.hookRequest(), answer) == nil:
		status.Result = newResult(answer.Response)
	}
	return nil
}

// withoutNumber removes the number from the name of an undo. The second undo of a step is stored as
// "name##2".
func withoutNumber(name string) string {
	step, _, _ := strings.Cut(name, "##")
	return step
}
