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

// serve is for people: a bank, a broker, fulfilment and the service, each in a process of its own that is started again when it dies,
// and in front of them the page. What the page can do to them is done from here: none of them has a hook for it.
func serve(ctx context.Context, databaseURL, address string, slow time.Duration, out io.Writer) error {
	pool, err := open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	fulfilmentURL, err := fulfilmentDatabase(ctx, databaseURL)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "orders-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the customers of this bank are not real
	orders, err := os.Executable()
	if err != nil {
		return err
	}
	env := []string{"DATABASE_URL=" + databaseURL, "FULFILMENT_DATABASE_URL=" + fulfilmentURL, "WEBHOOK_SECRET=" + newSecret()}
	parts := map[string]*process.Kept{}
	for _, part := range []struct {
		name string
		args []string
		url  string // the variable by which those that come after it find it
	}{
		{"bank", []string{"-ledger", filepath.Join(dir, "ledger"), "-slow", slow.String()}, "BANK_URL"},
		{"broker", []string{"-store", filepath.Join(dir, "messages")}, "BROKER_URL"},
		{"service", nil, "SHOP_URL"},
		{"fulfilment", nil, "FULFILMENT_URL"},
	} {
		kept, err := process.Keep(ctx, append([]string{orders, part.name}, part.args...), env, os.Stderr)
		if err != nil {
			return err
		}
		defer kept.Stop()
		parts[part.name] = kept
		env = append(env, part.url+"="+kept.URL)
	}
	credentials := demoCredentials()
	mux := http.NewServeMux()
	mux.Handle("/", withPage(pool, credentials, inFrontOf(parts["service"].URL)))
	mux.Handle("POST /kill", &killer{credentials, parts["service"].Kill})
	mux.Handle("GET /charges", &charges{credentials, inFrontOf(parts["bank"].URL)})
	return listenAndServe(ctx, address, mux, out, serveHint+serviceHint)
}

const serveHint = "\nOpen it in a browser: a shop, what it leaves in Postgres, and the books of its bank. Or by hand:\n"

// inFrontOf passes requests on to a server. If that is not there, or dies in the middle, the connection to the client is cut: it sees
// what it would see without anything in front.
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
