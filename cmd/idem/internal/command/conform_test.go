package command_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// callers writes the credentials of two callers to files and returns the flags for them.
func callers(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	var flags []string
	for flag, who := range map[string]string{"--credential": "alice", "--other-principal": "bob"} {
		file := filepath.Join(dir, who)
		if err := os.WriteFile(file, []byte("# "+who+"\nAuthorization: Bearer "+who+"-secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, flag, file)
	}
	return flags
}

// shop serves orders under idemhttp.
func (d *desk) shop(config idemhttp.Config) string {
	d.t.Helper()
	d.exec(`CREATE TABLE IF NOT EXISTS orders (id serial)`)
	config.Scope = func(r *http.Request) (string, error) {
		return idem.Scope(r.Header.Get("Authorization"), r.URL.Path), nil
	}
	m, err := idemhttp.New(d.pool, config)
	if err != nil {
		d.t.Fatal(err)
	}
	server := httptest.NewServer(m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		var id int
		if err := tx.QueryRow(r.Context(), `INSERT INTO orders DEFAULT VALUES RETURNING id`).Scan(&id); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprintf(w, `{"order":%d}`, id)
		return err
	}))
	d.t.Cleanup(server.Close)
	return server.URL + "/orders"
}

func TestIdemhttpConformsToItsProfiles(t *testing.T) {
	t.Parallel()
	toTheLetter := idemhttp.Config{Wait: -1}
	for name, test := range map[string]struct {
		profile string
		config  idemhttp.Config
	}{
		"ietf": {"ietf", idemhttp.Config{}}, "ietf, to the letter": {"ietf", toTheLetter},
		"stripe": {"stripe", idemhttp.StripeConfig()}, "acp": {"acp", idemhttp.ACPConfig()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			got := d.idem(append([]string{"conform", "--yes", "--profile", test.profile, d.shop(test.config)}, callers(t)...)...)
			got.want(t, 0, test.profile+": ", " 0 broken, 0 not tried")
			if strings.Contains(got.stdout, "secret") {
				t.Error("a credential is shown")
			}
		})
	}
}

func TestConformSaysWhatIsBrokenAndWhatItHasSeen(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	url := d.shop(idemhttp.StripeConfig()) // where Stripe answers 400, the draft requires 422
	d.idem(append([]string{"conform", "-y", url}, callers(t)...)...).want(t, 3, "broken     other-request: ", "it was answered 400, not 422", "section 2.7", "ietf: ")
	d.idem("conform", "-y", "--json", "--profile", "acp", url).want(t, 3, `"rule": "echo"`, `"verdict": "broken"`, `"not_tried": 1`)
	d.idem("conform", "-y", "--profile", "stripe", url).want(t, 6, "0 broken, 1 not tried", "there is no other principal")
}

func TestConformSendsNothingUnasked(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	t.Cleanup(server.Close)
	d := &desk{t: t}
	d.idem("conform", server.URL).want(t, 5, "sends up to 200 requests, 64 at once, to http://127.0.0.1:")
	d.idem("conform", "-y", "ftp://shop").want(t, 2, "is no URL")
	d.idem("conform", "-y", "--request", "/nowhere", server.URL).want(t, 1, "/nowhere")
	file := filepath.Join(t.TempDir(), "request")
	if err := os.WriteFile(file, []byte("POST /orders\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.idem("conform", "-y", "--request", file, server.URL).want(t, 2, "the path is that of the URL")
	d.idem("conform", "-y", "--profile", "rfc", server.URL).want(t, 2, "--profile")
}
