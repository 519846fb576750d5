package shop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

const (
	bodyLimit   = 64 << 10
	answerLimit = 20 * time.Second
)

// Shop is one instance of the service.
//
//	POST /{tenant}/orders      places an order
//	POST /{tenant}/checkouts   places one that is paid by card
type Shop struct {
	http.Handler
	clusters  []fleet.Cluster
	router    *fleet.Router
	checkouts *operation.Definition[Order]
	underWay  []*idemhttp.OperationHandler
	logger    *slog.Logger
}

// New returns an instance. It neither creates tables nor moves tenants.
func New(clusters []fleet.Cluster, bankURL string, logger *slog.Logger) (*Shop, error) {
	s := &Shop{clusters: clusters, router: fleet.NewRouter(clusters...), checkouts: newCheckout(bankURL), logger: logger}
	handlers := map[string]http.Handler{}
	for _, c := range clusters {
		h, err := s.serve(c)
		if err != nil {
			return nil, err
		}
		handlers[c.Name] = h
	}
	inner := s.router.Handler(func(r *http.Request) string { return r.PathValue("tenant") }, handlers, bodyLimit)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{tenant}/{what}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
		defer cancel()
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
	s.Handler = mux
	return s, nil
}

// serve returns the handler for the requests of one cluster.
func (s *Shop) serve(c fleet.Cluster) (http.Handler, error) {
	m, err := idemhttp.New(c.Pool, idemhttp.Config{
		Scope: func(r *http.Request) (string, error) {
			// This example has no authentication, see example/orders.
			return idem.Scope(r.PathValue("tenant"), "POST /orders"), nil
		},
		Observer: fleet.Observer{}, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	checkouts, err := idemhttp.Operate(m, s.checkouts, idemhttp.OperationConfig[Order]{
		Input: read, StatusPath: "/checkouts/{id}", Patience: answerLimit / 2,
	})
	if err != nil {
		return nil, err
	}
	s.underWay = append(s.underWay, checkouts)
	mux := http.NewServeMux()
	mux.Handle("POST /{tenant}/orders", m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		o, err := read(r)
		if err != nil {
			return err
		}
		id, _ := idem.ExecutionID(tx)
		if err := place(r.Context(), tx, id, o, ""); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err = io.WriteString(w, id)
		return err
	}))
	mux.Handle("POST /{tenant}/checkouts", checkouts)
	return mux, nil
}

// read decodes the order in r.
func read(r *http.Request) (o Order, err error) {
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return o, &idemhttp.Problem{Status: http.StatusBadRequest, Title: "An order is JSON"}
	}
	o.Tenant = r.PathValue("tenant")
	return o, nil
}

// Run relays messages and resumes operations of crashed processes in every cluster, until ctx ends.
func (s *Shop) Run(ctx context.Context) error {
	var running sync.WaitGroup
	failed := make([]error, 2*len(s.clusters))
	for i, c := range s.clusters {
		running.Go(func() {
			worker := operation.NewWorker(c.Pool, operation.WorkerConfig{Poll: 500 * time.Millisecond, Drain: time.Second, Logger: s.logger}, s.checkouts)
			failed[2*i] = worker.Run(ctx)
		})
		running.Go(func() {
			relay := outbox.NewRelay(c.Pool, biller{s.router}, outbox.RelayConfig{Logger: s.logger})
			failed[2*i+1] = relay.Run(ctx)
		})
	}
	running.Wait()
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, h := range s.underWay {
		failed = append(failed, h.Shutdown(shutdown))
	}
	return errors.Join(failed...)
}
