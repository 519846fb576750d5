package idemhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/operation"
)

type cart struct {
	SKU string `json:"sku"`
}

// checkout is an operation that reserves in Postgres, calls charge, and confirms.
func (s *shop) checkout(policy operation.Policy, charge func(ctx context.Context) (string, error)) *operation.Definition[cart] {
	return operation.Define("checkout", func(op *operation.Op, in cart) (idem.Response, error) {
		order, err := operation.Tx(op, "reserve", s.tryPlace, operation.UndoTx(func(tx pgx.Tx, order int64) error {
			_, err := tx.Exec(op.Context(), `delete from orders where id = $1`, order)
			return err
		}))
		if err != nil {
			return idem.Response{}, err
		}
		charged, err := operation.Call(op, "charge", policy, func(ctx context.Context, _ string) (string, error) { return charge(ctx) })
		if errors.Is(err, errDeclined) {
			return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusPaymentRequired, Body: []byte("declined")})
		}
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{
			Status: http.StatusCreated, Header: map[string][]string{"Location": {fmt.Sprintf("/orders/%d", order)}},
			Body: fmt.Appendf(nil, `{"order":%d,"sku":%q,"charge":%q}`, order, in.SKU, charged),
		}, nil
	})
}

var errDeclined = errors.New("declined")

func charged(context.Context) (string, error) { return "ch_1", nil }

// operate returns the handler of an operation. Patience never ends, unless configure changes it.
func (s *shop) operate(d *operation.Definition[cart], configure ...func(*idemhttp.OperationConfig[cart])) *idemhttp.OperationHandler {
	s.t.Helper()
	config := idemhttp.OperationConfig[cart]{StatusPath: "/operations/{id}", Patience: time.Hour}
	for _, f := range configure {
		f(&config)
	}
	h, err := idemhttp.Operate(s.middleware(func(c *idemhttp.Config) { c.Wait = -1 }), d, config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx)
	})
	return h
}

func impatient(c *idemhttp.OperationConfig[cart]) { c.Patience = time.Nanosecond }

// shutdown waits for what goes on without a request.
func shutdown(t *testing.T, h *idemhttp.OperationHandler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

// statusAt asks at the Location of an answer.
func statusAt(t *testing.T, h *idemhttp.OperationHandler, location string, edits ...edit) *http.Response {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/operations/{id}", h.Status())
	return ask(mux, append([]edit{withMethod(http.MethodGet), withTarget(location), withoutKey()}, edits...)...)
}

// status is what a client is told of an operation.
type status struct {
	ID         string `json:"operation_id"`
	Name       string
	State      string
	Step       string
	Reason     operation.Reason
	ReasonText string    `json:"reason_text"`
	WaitsFor   string    `json:"waits_for"`
	WaitsUntil time.Time `json:"waits_until"`
	Since      time.Time
	Steps      []struct{ Kind, Name, Outcome string }
}

func (s status) steps() (steps []string) {
	for _, step := range s.Steps {
		steps = append(steps, step.Kind+" "+step.Name+" "+step.Outcome)
	}
	return steps
}

func wantOperation(t *testing.T, answer *http.Response, code int, state string) (told status) {
	t.Helper()
	wantStatus(t, answer, code)
	if err := json.Unmarshal([]byte(body(t, answer)), &told); err != nil {
		t.Fatal(err)
	}
	if told.State != state || told.ID == "" || told.Name != "checkout" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("want state %s: %s %v", state, body(t, answer), answer.Header)
	}
	return told
}

func TestOperate_AnswersAndReplaysWithinPatience(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.operate(s.checkout(operation.Once, charged))
	first := ask(h)
	wantStatus(t, first, http.StatusCreated)
	if got := body(t, first); got != `{"order":1,"sku":"teapot","charge":"ch_1"}` || first.Header.Get("Location") != "/orders/1" {
		t.Errorf("%s %v", got, first.Header)
	}
	wantReplay(t, first, ask(h))
	wantProblem(t, ask(h, withBody(`{"sku":"kettle"}`)), http.StatusUnprocessableEntity, "key-reused")
	wantStatus(t, ask(h, withTenant("u")), http.StatusCreated)
	s.want(2, 2)
}

func TestOperate_RejectionIsUndoneAndReplayed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.operate(s.checkout(operation.Once, func(context.Context) (string, error) { return "", operation.Final(errDeclined) }))
	first := ask(h)
	wantStatus(t, first, http.StatusPaymentRequired)
	wantReplay(t, first, ask(h))
	s.want(0, 1)
}

func TestOperate_LongOperationIsAcceptedAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	release := make(chan struct{})
	h := s.operate(s.checkout(operation.Once, func(ctx context.Context) (string, error) {
		select {
		case <-release:
			return "ch_1", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}), impatient)
	accepted := ask(h)
	told := wantOperation(t, accepted, http.StatusAccepted, "running")
	location := accepted.Header.Get("Location")
	if location != "/operations/"+told.ID || accepted.Header.Get("Retry-After") != "1" || told.Step != "charge" || told.Since.IsZero() {
		t.Errorf("%v: %+v", accepted.Header, told)
	}
	if diff := cmp.Diff([]string{"tx reserve done", "call charge begun"}, told.steps()); diff != "" {
		t.Errorf("steps (-want +told):\n%s", diff)
	}
	if again := wantOperation(t, ask(h), http.StatusAccepted, "running"); again.ID != told.ID {
		t.Errorf("a repetition is told of %s, the first of %s", again.ID, told.ID)
	}
	wantProblem(t, ask(h, withBody(`{"sku":"kettle"}`)), http.StatusUnprocessableEntity, "key-reused")
	wantOperation(t, statusAt(t, h, location), http.StatusOK, "running")
	close(release)
	shutdown(t, h)
	ended := wantOperation(t, statusAt(t, h, location), http.StatusOK, "completed")
	if steps := ended.steps(); len(steps) != 2 || steps[1] != "call charge done" {
		t.Errorf("%v", steps)
	}
	answer := ask(s.operate(s.checkout(operation.Once, charged)))
	wantStatus(t, answer, http.StatusCreated)
	if answer.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("this is no replay")
	}
	s.want(1, 1)
}

// A 202 is a promise. There is none before the operation is durable.
func TestOperate_AcceptsOnlyADurableOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	reserving, release := make(chan struct{}), make(chan struct{})
	d := operation.Define("checkout", func(op *operation.Op, _ cart) (idem.Response, error) {
		_, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (int64, error) {
			close(reserving)
			<-release
			return s.tryPlace(tx)
		})
		return idem.Response{Status: http.StatusCreated}, err
	})
	h := s.operate(d, impatient)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reserving; cancel() }()
	wantProblem(t, ask(h, withContext(ctx)), http.StatusConflict, "in-progress")
	close(release)
	shutdown(t, h)
	s.want(1, 1) // it went on all the same
	wantStatus(t, ask(h), http.StatusCreated)
}

func TestOperate_ReasonsAreOptIn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout(operation.Once, func(context.Context) (string, error) { return "", errors.New("no answer") })
	h := s.operate(d)
	accepted := ask(h)
	told := wantOperation(t, accepted, http.StatusAccepted, "parked")
	if told.Step != "charge" || told.Reason != "" || told.ReasonText != "" || accepted.Header.Get("Retry-After") != "60" {
		t.Errorf("%+v %v", told, accepted.Header)
	}
	if logged := s.logs.String(); !strings.Contains(logged, "must not happen twice") || !strings.Contains(logged, told.ID) {
		t.Errorf("the log: %s", logged)
	}
	open := s.operate(d, func(c *idemhttp.OperationConfig[cart]) { c.Reasons = true })
	told = wantOperation(t, statusAt(t, open, accepted.Header.Get("Location")), http.StatusOK, "parked")
	if told.Reason != operation.ReasonCallInDoubt || !strings.Contains(told.ReasonText, `"charge"`) {
		t.Errorf("%+v", told)
	}
}

// A client that has lost its request, and kept the Location, gets the answer.
func TestStatus_HasTheResult(t *testing.T) {
	t.Parallel()
	type told struct {
		Result *struct {
			Status int
			Header http.Header
			Body   json.RawMessage
			Bytes  []byte `json:"body_base64"`
		}
	}
	result := func(t *testing.T, answer *http.Response) (got told) {
		t.Helper()
		if err := json.Unmarshal([]byte(body(t, answer)), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, test := range map[string]struct {
		charge       func(context.Context) (string, error)
		status       int
		state        string
		body, binary string
	}{
		"completed": {charged, 201, "completed", `{"order":1,"sku":"teapot","charge":"ch_1"}`, ""},
		"rejected":  {func(context.Context) (string, error) { return "", operation.Final(errDeclined) }, 402, "failed", "", "declined"},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			release := make(chan struct{})
			h := s.operate(s.checkout(operation.Once, func(ctx context.Context) (string, error) {
				<-release
				return test.charge(ctx)
			}), impatient)
			accepted := ask(h)
			location := accepted.Header.Get("Location")
			if got := result(t, accepted); got.Result != nil {
				t.Errorf("a result before the end: %s", body(t, accepted))
			}
			close(release)
			shutdown(t, h)
			answer := statusAt(t, h, location)
			wantOperation(t, answer, http.StatusOK, test.state)
			got := result(t, answer).Result
			if got == nil || got.Status != test.status || string(got.Body) != test.body || string(got.Bytes) != test.binary {
				t.Fatalf("want %d %s%s: %s", test.status, test.body, test.binary, body(t, answer))
			}
			if test.status == 201 && got.Header.Get("Location") != "/orders/1" {
				t.Errorf("header %v", got.Header)
			}
			wantProblem(t, statusAt(t, h, location, withTenant("u")), http.StatusNotFound, "no-such-operation")

			guarded, err := idemhttp.Operate(s.middleware(func(c *idemhttp.Config) {
				c.Authorize = func(*http.Request, idem.Result) error { return errors.New("no longer") }
			}), s.checkout(operation.Once, charged), idemhttp.OperationConfig[cart]{StatusPath: "/operations/{id}"})
			if err != nil {
				t.Fatal(err)
			}
			if got := result(t, statusAt(t, guarded, location)); got.Result != nil {
				t.Error("Authorize refuses, and the result is shown")
			}
			if _, err := s.pool.Exec(t.Context(), `update idem.records set expires_at = now() - interval '1 s'`); err != nil {
				t.Fatal(err)
			}
			if got := result(t, statusAt(t, h, location)); got.Result != nil {
				t.Error("an expired answer is shown")
			}
		})
	}
}

func TestStatus_HidesSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	hidden := func(c *idemhttp.OperationConfig[cart]) { c.HideSteps, c.Reasons = true, true }
	h := s.operate(s.checkout(operation.Once, func(context.Context) (string, error) { return "", errors.New("no answer") }), hidden)
	accepted := ask(h)
	wantOperation(t, accepted, http.StatusAccepted, "parked")
	waits := s.operate(operation.Define("checkout", func(op *operation.Op, _ cart) (idem.Response, error) {
		_, err := operation.Await[string](op, "approval", time.Hour)
		return idem.Response{}, err
	}), hidden)
	for _, answer := range []*http.Response{accepted, statusAt(t, h, accepted.Header.Get("Location")), ask(waits, withKey("waits"))} {
		for _, internal := range []string{"reserve", "charge", "approval", `"steps"`, `"step"`, "waits_for", "reason_text"} {
			if text := body(t, answer); strings.Contains(text, internal) {
				t.Errorf("%s is shown: %s", internal, text)
			}
		}
	}
	if told := wantOperation(t, accepted, http.StatusAccepted, "parked"); told.Reason != operation.ReasonCallInDoubt {
		t.Errorf("%+v", told)
	}
}

func TestOperationStatus_SaysWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.operate(operation.Define("checkout", func(op *operation.Op, _ cart) (idem.Response, error) {
		_, err := operation.Await[string](op, "approval", 48*time.Hour)
		return idem.Response{Status: http.StatusCreated}, err
	}))
	told := wantOperation(t, ask(h), http.StatusAccepted, "running")
	if told.WaitsFor != "approval" || told.WaitsUntil.Sub(told.Since).Round(time.Hour) != 48*time.Hour {
		t.Errorf("%+v", told)
	}
}

func TestOperationStatus_NeedsTheScopeOfTheOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.operate(s.checkout(operation.Once, func(context.Context) (string, error) { return "", errors.New("no answer") }))
	location := ask(h).Header.Get("Location")
	wantOperation(t, statusAt(t, h, location), http.StatusOK, "parked")
	stranger := wantProblem(t, statusAt(t, h, location, withTenant("u")), http.StatusNotFound, "no-such-operation")
	unknown := wantProblem(t, statusAt(t, h, "/operations/11111111-2222-4333-8444-555555555555"), http.StatusNotFound, "no-such-operation")
	if diff := cmp.Diff(unknown, stranger); diff != "" {
		t.Errorf("a stranger can tell that it is there: %s", diff)
	}
	wantProblem(t, statusAt(t, h, "/operations/17"), http.StatusNotFound, "no-such-operation")
	wantStatus(t, statusAt(t, h, location, withHeader("Authorization")), http.StatusUnauthorized)
	wantProblem(t, statusAt(t, h, location, withMethod(http.MethodPost)), http.StatusMethodNotAllowed, "get-only")
	if told := body(t, statusAt(t, h, location)); strings.Contains(told, "teapot") || strings.Contains(told, `"k"`) {
		t.Errorf("it tells the input or the key: %s", told)
	}
}

func TestShutdown_ReleasesOperationsAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.operate(s.checkout(operation.Keyed(time.Hour), func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}), impatient)
	wantOperation(t, ask(h), http.StatusAccepted, "running")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Shutdown(over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := s.count(`select count(*) from idem.operations where state = 'running' and owner is null`); n != 1 {
		t.Error("no other may go on with it")
	}
	wantStatus(t, ask(s.operate(s.checkout(operation.Keyed(time.Hour), charged))), http.StatusCreated)
	s.want(1, 1)
}

func TestOperate_AnswersToFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fn     func(s *shop, op *operation.Op) error
		status int
		kind   string // of a problem
	}{
		"an error before anything is durable": {func(*shop, *operation.Op) error { return errors.New("no more teapots") }, 500, "internal"},
		"an error afterwards": {func(s *shop, op *operation.Op) error {
			return errors.Join(op.Checkpoint(), errors.New("no more teapots"))
		}, 202, ""},
		"a panic before anything is durable": {func(*shop, *operation.Op) error { panic("no more teapots") }, 500, "internal"},
		"a panic afterwards": {func(s *shop, op *operation.Op) error {
			_ = op.Checkpoint()
			panic("no more teapots")
		}, 202, ""},
		"a problem, after which it is undone": {func(s *shop, op *operation.Op) error {
			_ = op.Checkpoint()
			return operation.Final(&idemhttp.Problem{Type: "/docs/http-reference.md#sold-out", Title: "no more teapots", Status: 410})
		}, 410, "sold-out"},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			h := s.operate(operation.Define("checkout", func(op *operation.Op, _ cart) (idem.Response, error) {
				if _, err := operation.Tx(op, "reserve", s.tryPlace); err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, test.fn(s, op)
			}))
			answer := ask(h)
			if test.kind == "" {
				wantOperation(t, answer, test.status, "running")
			} else {
				wantProblem(t, answer, test.status, test.kind)
			}
			if got := body(t, answer); test.status != 410 && strings.Contains(got, "no more teapots") {
				t.Errorf("the client is told: %s", got)
			}
			if test.status != 410 && !strings.Contains(s.logs.String(), "no more teapots") {
				t.Errorf("the log does not tell: %s", s.logs.String())
			}
		})
	}
}

func TestOperate_InvalidInputStartsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout(operation.Once, charged)
	h := s.operate(d)
	for _, wrong := range []string{`{"sku":`, `["teapot"]`, `{"sku":"teapot"} {}`} {
		wantProblem(t, ask(h, withBody(wrong), withHeader("Content-Type", "text/plain")), http.StatusBadRequest, "invalid-json")
	}
	wantProblem(t, ask(h, withoutKey()), http.StatusBadRequest, "missing-key")
	wantStatus(t, ask(h, withHeader("Authorization")), http.StatusUnauthorized)
	picky := s.operate(d, func(c *idemhttp.OperationConfig[cart]) {
		c.Input = func(r *http.Request) (cart, error) {
			if r.Header.Get("X-Sku") == "" {
				return cart{}, &idemhttp.Problem{Type: "about:blank", Title: "Of what?", Status: http.StatusBadRequest}
			}
			return cart{SKU: r.Header.Get("X-Sku")}, nil
		}
	})
	wantStatus(t, ask(picky), http.StatusBadRequest)
	s.want(0, 0)
	answer := ask(picky, withHeader("X-Sku", "kettle"))
	wantStatus(t, answer, http.StatusCreated)
	if !strings.Contains(body(t, answer), "kettle") {
		t.Error(body(t, answer))
	}
}
