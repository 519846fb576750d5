package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/example/orders/process"
)

// serve is for people: a bank and a service, each in a process of its own that is started again when it dies, and in front of them
// the page. What the page can do to them is done from here: neither of them has a hook for it.
func serve(ctx context.Context, databaseURL, address string, slow time.Duration, out io.Writer) error {
	pool, err := open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	orders, err := os.Executable()
	if err != nil {
		return err
	}
	books, err := os.MkdirTemp("", "orders-bank-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(books) // the customers of this bank are not real
	bank, err := process.Keep(ctx, []string{orders, "bank", "-ledger", filepath.Join(books, "ledger"), "-slow", slow.String()}, nil, os.Stderr)
	if err != nil {
		return err
	}
	defer bank.Stop()
	service, err := process.Keep(ctx, []string{orders, "service"}, []string{"DATABASE_URL=" + databaseURL, "BANK_URL=" + bank.URL}, os.Stderr)
	if err != nil {
		return err
	}
	defer service.Stop()
	credentials := demoCredentials()
	mux := http.NewServeMux()
	mux.Handle("/", withPage(pool, credentials, inFrontOf(service.URL)))
	mux.Handle("POST /kill", &killer{credentials, service.Kill})
	mux.Handle("GET /charges", &charges{credentials, inFrontOf(bank.URL)})
	return listenAndServe(ctx, address, mux, out, serveHint+serviceHint)
}

const serveHint = "\nOpen it in a browser: a shop, what it leaves in Postgres, and the books of its bank. Or by hand:\n"

// inFrontOf passes requests on to a server. If that is not there, or dies in the middle, the connection to the client is cut: it sees
// what it would see without anybody in front.
func inFrontOf(server string) http.Handler {
	target, err := url.Parse(server)
	if err != nil {
		panic(err) // it is one of our own
	}
	return &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// killer kills the service. It belongs to the page, as mishaps do: the service itself cannot be asked for it.
type killer struct {
	credentials credentials
	kill        func()
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := k.credentials.tenant(r); err != nil {
		refuse(w, r, err)
		return
	}
	k.kill()
	w.WriteHeader(http.StatusNoContent)
}

// charges shows a tenant what the bank has charged it.
type charges struct {
	credentials credentials
	bank        http.Handler
}

func (c *charges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tenant, err := c.credentials.tenant(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	r.URL.RawQuery = url.Values{"customer": {tenant}}.Encode()
	c.bank.ServeHTTP(w, r)
}
