package contestant

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/storage/postgres/v3"
	"github.com/jackc/pgx/v5"
	"github.com/valyala/fasthttp"
)

// Fiber is the idempotency middleware of fiber with its storage on Postgres, around a handler that
// runs the plain transaction.
//
// The middleware stores the response after the commit of the handler, in a second transaction. A
// request is executed again after a crash in between, or if a duplicate arrives at another process
// at the same time. Duplicates in one process wait for a lock in memory. The payload is not
// compared. The benchmark calls the handler without a socket, to measure only the work of the
// middleware.
func Fiber() Contestant {
	return Contestant{
		Name: NameFiber, Tables: []string{"fiber_storage"},
		Open: func(_ context.Context, place Place) (Runner, error) {
			f := &fiberRunner{pooled: pooled{place.Pool}}
			app := fiber.New()
			f.stored = postgres.New(postgres.Config{DB: place.Pool, GCInterval: time.Hour})
			app.Use(idempotency.New(idempotency.Config{Storage: f.stored, Lifetime: 24 * time.Hour}))
			app.Post("/orders", f.order)
			f.handle = app.Handler()
			return f, nil
		},
	}
}

type fiberRunner struct {
	pooled
	calls  calls
	stored *postgres.Storage
	handle fasthttp.RequestHandler
}

const keyHeader = "X-Idempotency-Key"

func (f *fiberRunner) order(c fiber.Ctx) error {
	call := f.calls.of(c.Get(keyHeader))
	ctx := context.Background()
	if err := pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error { return call.Execute(ctx, tx) }); err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).Send(call.Body)
}

func (f *fiberRunner) Do(_ context.Context, call Call) (Answer, error) {
	executed := f.calls.put(call)
	defer f.calls.drop(call.Key)
	var request fasthttp.Request
	request.Header.SetMethod(fasthttp.MethodPost)
	request.SetRequestURI("/orders")
	request.Header.Set(keyHeader, call.Key)
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, nil, nil)
	f.handle(&ctx)
	if status := ctx.Response.StatusCode(); status != fiber.StatusCreated {
		return Answer{}, fmt.Errorf("status %d: %s", status, ctx.Response.Body())
	}
	return Answer{Body: bytes.Clone(ctx.Response.Body()), Replayed: !executed()}, nil
}
