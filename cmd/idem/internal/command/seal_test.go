package command_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/seal"
)

func TestShow_OpensASealedResponseWithItsKey(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	secret, other := []byte(strings.Repeat("s", 32)), []byte(strings.Repeat("o", 32))
	sealer := seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}})
	for _, key := range []string{"k", "moved"} {
		_, err := idem.Do(t.Context(), d.pool, "s", key, idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201, Header: map[string][]string{"X-Order": {"17"}}, Body: []byte("for " + key + " alone")}, nil
		}, idem.WithSealer(sealer))
		if err != nil {
			t.Fatal(err)
		}
	}
	encode := base64.StdEncoding.EncodeToString
	show := func(keys string, args ...string) output {
		t.Helper()
		return d.withKeys(keys, append([]string{"show", "s", "k"}, args...)...)
	}
	show("").want(t, 0, "sealed with   2026-11")
	show("", "--json").want(t, 0, `"sealed_by": "2026-11"`)
	show("", "--reveal").want(t, 1, `sealed with the key "2026-11"`, "--seal-keys")
	show("2026-10="+encode(other), "--reveal").want(t, 1, `sealed with the key "2026-11"`)
	show("2026-11="+encode(other), "--reveal").want(t, 1, "does not open", "another secret")
	both := "2026-10=" + encode(other) + ",2026-11=" + encode(secret)
	show(both, "--reveal").want(t, 0, "X-Order: 17", "for k alone")
	show(both, "--reveal", "--json").want(t, 0, `"body_text": "for k alone"`, `"X-Order"`)

	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("2026-11="+encode(secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	show("", "--reveal", "--seal-keys", file).want(t, 0, "for k alone")
	broken := show("2026-11=c2VjcmV0", "--reveal")
	broken.want(t, 1, "IDEM_SEAL_KEYS: entry 1 is not ID=SECRET")
	if strings.Contains(broken.stderr, "c2Vj") {
		t.Errorf("the error contains the secret: %s", broken.stderr)
	}
	d.idem("stats", "--exact").want(t, 0, "SEALED WITH", "2026-11")

	d.exec("UPDATE idem.records SET body = (SELECT body FROM idem.records WHERE key = 'moved') WHERE key = 'k'")
	show(both, "--reveal").want(t, 1, "does not open", "moved from another place")
}
