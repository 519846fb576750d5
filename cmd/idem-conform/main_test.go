package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/lab/pgtest"
)

// expect runs the program, and checks its exit code and that its output contains each of parts.
func expect(t *testing.T, code int, args []string, parts ...string) {
	t.Helper()
	var out bytes.Buffer
	if got := run(args, strings.NewReader(""), &out, &out); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for _, part := range parts {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the output has no %q", part)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the output has a credential")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// write writes a file and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// callers returns flags with the credentials of two callers.
func callers(t *testing.T) []string {
	t.Helper()
	return []string{"--credential", write(t, "# alice\nAuthorization: Bearer alice-secret\n"), "--other-principal", write(t, "Authorization: Bearer bob-secret\n")}
}

// shop starts a server with an idemhttp handler, and returns the URL of its orders.
func shop(t *testing.T, config idemhttp.Config) string {
	t.Helper()
	pool := pgtest.Open(t, pgtest.DSN(t))
	if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (id serial)`); err != nil {
		t.Fatal(err)
	}
	config.Scope = func(r *http.Request) (string, error) {
		return idem.Scope(r.Header.Get("Authorization"), r.URL.Path), nil
	}
	m, err := idemhttp.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		if body, err := io.ReadAll(r.Body); err != nil || bytes.Contains(body, []byte("declined")) {
			w.WriteHeader(http.StatusPaymentRequired)
			return err
		}
		var id int
		if err := tx.QueryRow(r.Context(), `INSERT INTO orders DEFAULT VALUES RETURNING id`).Scan(&id); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprintf(w, `{"order":%d}`, id)
		return err
	}))
	t.Cleanup(server.Close)
	return server.URL + "/orders"
}

func TestIdemhttp_ConformsToItsProfiles(t *testing.T) {
	t.Parallel()
	failing := write(t, `{"declined":"{{unique}}"}`)
	for name, test := range map[string]struct {
		profile string
		config  idemhttp.Config
	}{
		"ietf": {"ietf", idemhttp.Config{}}, "ietf without waiting": {"ietf", idemhttp.Config{Wait: -1}},
		"stripe": {"stripe", idemhttp.StripeConfig()}, "stripe-v2": {"stripe-v2", idemhttp.StripeV2Config()},
		"acp": {"acp", idemhttp.ACPConfig()}, "ucp": {"ucp", idemhttp.UCPConfig()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--yes", "--profile", test.profile, "--failing-body", failing}, callers(t)...)
			expect(t, exitKept, append(args, shop(t, test.config)), test.profile+": ", " 0 broken, 0 not tried")
		})
	}
}

func TestReport_ShowsEvidence(t *testing.T) {
	t.Parallel()
	url := shop(t, idemhttp.StripeConfig()) // answers 400 where the IETF draft requires 422
	expect(t, exitBroken, append(append([]string{"-y"}, callers(t)...), url), "broken     other-request: ", "not 422", "section 2.7", "ietf: ")
	expect(t, exitBroken, []string{"-y", "--json", "--profile", "acp", url}, `"rule": "echo"`, `"verdict": "broken"`, `"not_tried": 1`)
	expect(t, exitNotTried, []string{"-y", "--profile", "stripe", url}, "0 broken, 1 not tried", "--other-principal")
	v2 := []string{"-y", "--profile", "stripe-v2", "--failing-body", write(t, `{"declined":1}`), url}
	expect(t, exitBroken, v2, "broken     failed-request: ", "1 broken, 1 not tried") // StripeConfig records failures
}

func TestNothingIsSent_WithoutConsent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	t.Cleanup(server.Close)
	expect(t, exitRefused, []string{server.URL}, "sends up to 200 requests, 64 at once, to http://127.0.0.1:", "nothing was sent")
	for _, test := range []struct {
		code int
		args []string
		says string
	}{
		{exitUsage, []string{"ftp://shop"}, "is not a URL"},
		{exitUsage, []string{"http//user:secret@shop"}, `"…@shop" is not a URL`},
		{exitUsage, []string{"--profile", "rfc", server.URL}, "--profile"},
		{exitUsage, []string{"--request", write(t, "POST /orders\n\n"), server.URL}, "the path"},
		{exitFailed, []string{"--request", "/nowhere", server.URL}, "/nowhere"},
		{exitKept, []string{"--help"}, "Usage: idem-conform"},
		{exitUsage, []string{"--nonsense", server.URL}, "idem-conform: flag provided but not defined: -nonsense; -h lists the flags\n"},
	} {
		expect(t, test.code, append([]string{"-y"}, test.args...), test.says)
	}
}
