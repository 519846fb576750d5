package bad

import (
	"context"
	"net/http"
	"net/smtp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

func (s *service) chargesInside(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := http.Post("https://bank.example/charges", "application/json", strings.NewReader("{}")) // want idemcallout
		if err != nil {
			return idem.Response{}, err
		}
		return created, resp.Body.Close()
	})
}

func (s *service) clientOfTheService(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, s.notify(ctx)
	})
}

func (s *service) notify(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://hooks.example", nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req) // want idemcallout
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (s *service) callsByGRPC(ctx context.Context, bank pb.TestServiceClient, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := bank.UnaryCall(ctx, &pb.SimpleRequest{}) // want idemcallout
		return created, err
	})
}

func (s *service) invokesByGRPC(ctx context.Context, conn grpc.ClientConnInterface, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, conn.Invoke(ctx, "/bank.Bank/Charge", nil, nil) // want idemcallout
	})
}

func (s *service) publishesInside(ctx context.Context, js *nats.Conn, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES"); err != nil {
			return idem.Response{}, err
		}
		return created, js.Publish("orders", nil) // want idemcallout
	})
}

func (s *service) producesInside(ctx context.Context, kafka *kgo.Client, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		return kafka.ProduceSync(ctx, &kgo.Record{Topic: "parcels"}).FirstErr() // want idemcallout
	})
}

func (s *service) mailsInside(ctx context.Context, scope, key string, hash idem.Hash) error {
	_, _, err := idem.DoJSON(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (string, error) {
		return "sent", smtp.SendMail("mail:25", nil, "shop@example.com", []string{"you@example.com"}, nil) // want idemcallout
	})
	return err
}

func handlerThatCalls(m *idemhttp.Middleware) http.Handler {
	return m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		resp, err := http.Get("https://fraud.example/check") // want idemcallout
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

var chargesInAStep = operation.Define("charge", func(op *operation.Op, in string) (idem.Response, error) {
	_, err := operation.Tx(op, "charge", func(tx pgx.Tx) (string, error) {
		resp, err := http.Post("https://bank.example/charges", "application/json", nil) // want idemcallout
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	})
	return created, err
})

var refundsInAnUndoTx = operation.Define("refund", func(op *operation.Op, in string) (idem.Response, error) {
	err := operation.Exec(op, "order", func(tx pgx.Tx) error { return nil }, operation.UndoTx(func(tx pgx.Tx, _ operation.None) error {
		resp, err := http.Post("https://bank.example/refunds", "application/json", nil) // want idemcallout
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}))
	return created, err
})

func (s *service) publishesInADefer(ctx context.Context, js *nats.Conn, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		defer func() {
			_ = js.Publish("orders", nil) // want idemcallout
		}()
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) callsByAMethodValue(ctx context.Context, req *http.Request, scope, key string, hash idem.Hash) (idem.Result, error) {
	send := http.DefaultClient.Do
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := send(req) // want idemcallout
		if err != nil {
			return idem.Response{}, err
		}
		return created, resp.Body.Close()
	})
}
