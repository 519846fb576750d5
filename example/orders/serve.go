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

// serve runs the shop for a person to try: bank, broker, service and fulfilment, each in its own
// process that is restarted after a crash, and the page in front of them. The faults that the page
// can request are injected here. The parts have no hooks for faults.
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
	defer os.RemoveAll(dir) // the messages of the broker are only test data
	orders, err := os.Executable()
	if err != nil {
		return err
	}
	env := []string{"DATABASE_URL=" + databaseURL, "FULFILMENT_DATABASE_URL=" + fulfilmentURL, "WEBHOOK_SECRET=" + newSecret()}
	parts := map[string]*process.Kept{}
	// The order matters, because a part finds the earlier parts by environment variables.
	for _, part := range []struct {
		name string
		args []string
		url  string // environment variable that gives the URL of this part to the later parts
	}{
		{"bank", []string{"-slow", slow.String()}, "BANK_URL"},
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
	bank := inFrontOf(parts["bank"].URL)
	mux.Handle("GET /charges", credentials.only(func(w http.ResponseWriter, r *http.Request, tenant string) {
		r.URL.RawQuery = url.Values{"customer": {tenant}}.Encode()
		bank.ServeHTTP(w, r)
	}))
	mux.Handle("POST /kill", credentials.only(func(w http.ResponseWriter, _ *http.Request, _ string) {
		parts["service"].Kill()
		w.WriteHeader(http.StatusNoContent)
	}))
	return listenAndServe(ctx, address, mux, out, serveHint+serviceHint)
}

const serveHint = "\nOpen the address in a browser: the page has a shop, its rows in Postgres, and the ledger of its bank. Or use curl:\n"

// inFrontOf returns a proxy to a server. If the server is unreachable or dies during a request, the
// proxy closes the connection to the client. The client sees the same failure as without a proxy.
func inFrontOf(server string) http.Handler {
	target, err := url.Parse(server)
	if err != nil {
		panic(err) // cannot happen: server is the URL of a process that this program has started
	}
	return &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}
