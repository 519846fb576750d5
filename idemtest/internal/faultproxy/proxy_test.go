package faultproxy_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestProxy_ReachesAServerThatRequiresTLS(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.TLS(t, pgtest.DSN(t)))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Start(&config.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	front := config.Copy()
	front.Host, front.Port, front.TLSConfig, front.Fallbacks = "127.0.0.1", proxy.Port(), nil, nil
	conn, err := pgx.ConnectConfig(t.Context(), front)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	proxy.Arm(faultproxy.Fault{Kind: faultproxy.Lose})
	if _, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err == nil {
		t.Error("the answer was not lost")
	}
}
