package promises_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

// The test searches the server's files: tables with their TOAST data, the write-ahead log, and the
// log of all statements with their parameters. It also finds a response that is stored plain, which
// shows that the search works.
func TestFilesOfTheServerHaveNothingOfASealedResponse(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "log_statement=all", "full_page_writes=on", "wal_compression=off")
	ctx := context.Background()
	db, err := migrate.Open(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := migrate.Up(ctx, db, migrations.FS); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // puts the parameters into the server's log
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	secrets := map[string]map[string][]byte{
		"sealed": writeSecrets(t, pool, sealed("a")), "plain": writeSecrets(t, pool),
	}
	if _, err := pool.Exec(ctx, "checkpoint"); err != nil {
		t.Fatal(err)
	}
	found := search(t, filepath.Dir(server.Log()), secrets)
	if len(found["sealed"]) > 0 {
		t.Errorf("what was sealed is found: %q", found["sealed"])
	}
	for _, folder := range []string{"base", "pg_wal", "postgres.log"} {
		for name := range secrets["plain"] {
			if want := name + " in " + folder; !slices.Contains(found["plain"], want) {
				t.Errorf("what is plain is not found: no %s, only %q", want, found["plain"])
			}
		}
	}
}

// writeSecrets records responses of several kinds and sizes, replays them, and returns their
// contents. The contents are random letters, which compression does not hide from the search.
func writeSecrets(t *testing.T, pool *pgxpool.Pool, opts ...idem.Option) map[string][]byte {
	t.Helper()
	ctx := context.Background()
	secrets := map[string][]byte{"header": letters(40), "body": letters(40), "long body": letters(100_000), "rejection": letters(40), "joined": letters(40)}
	keyed := string(letters(8))
	for range 2 {
		for name, secret := range secrets {
			resp := idem.Response{Status: 201, Body: secret}
			if name == "header" {
				resp = idem.Response{Header: map[string][]string{"Location": {string(secret)}}}
			}
			fn := answer(resp)
			if name == "rejection" {
				fn = func(pgx.Tx) (idem.Response, error) { return idem.Response{}, idem.Reject(resp) }
			}
			var err error
			if name == "joined" {
				err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					_, err := idem.DoTx(ctx, tx, scope, name+keyed, hashA, fn, opts...)
					return err
				})
			} else {
				_, err = idemDo(ctx, pool, scope, name+keyed, hashA, fn, opts...)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return secrets
}

func letters(n int) []byte {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('!' + rand.IntN('~'-'!'))
		if strings.ContainsRune(`"\<>&'`, rune(text[i])) { // characters that JSON or SQL would escape
			text[i] = 'x'
		}
	}
	return text
}

// search returns which secrets it has found in the files below dir, and in which folders.
func search(t *testing.T, dir string, secrets map[string]map[string][]byte) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, dir+"/"), "data/"), "/")
		for kind, named := range secrets {
			for name, secret := range named {
				if where := name + " in " + folder; contains(text, secret) && !slices.Contains(found[kind], where) {
					found[kind] = append(found[kind], where)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// contains reports whether some part of secret is in text, as it is or in hexadecimal digits.
func contains(text, secret []byte) bool {
	for _, at := range []int{0, len(secret)/2 - 12, len(secret) - 24} {
		if piece := secret[at : at+24]; bytes.Contains(text, piece) || bytes.Contains(text, hex.AppendEncode(nil, piece)) {
			return true
		}
	}
	return false
}
