package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// The address comes from flags, from a URL, from variables, and from the password file.
func TestAddress_IsFoundLikePsql(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	host, port, user, database, password := config.Host, fmt.Sprint(config.Port), config.User, config.Database, config.Password
	passfile := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(passfile, fmt.Appendf(nil, "%s:%s:*:%s:%s\n", host, port, user, password), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := "postgres://stranger@127.0.0.1:1/nowhere"
	for name, tt := range map[string]struct {
		env, args []string
	}{
		"DATABASE_URL":                  {[]string{"DATABASE_URL=" + dsn}, nil},
		"the variables of psql":         {[]string{"PGHOST=" + host, "PGPORT=" + port, "PGUSER=" + user, "PGDATABASE=" + database, "PGPASSWORD=" + password}, nil},
		"flags":                         {[]string{"PGPASSWORD=" + password}, []string{"-h", host, "-p", port, "-U", user, "-d", database}},
		"long flags":                    {[]string{"PGPASSWORD=" + password}, []string{"--host", host, "--port", port, "--username", user, "--dbname", database}},
		"a URL as the database":         {[]string{"DATABASE_URL=" + wrong}, []string{"-d", dsn}},
		"a string as the database":      {nil, []string{"-d", fmt.Sprintf("host=%s port=%s user=%s dbname=%s password='%s'", host, port, user, database, password)}},
		"flags before DATABASE_URL":     {[]string{"DATABASE_URL=" + wrong, "PGPASSWORD=" + password}, []string{"-h", host, "-p", port, "-U", user, "-d", database}},
		"a database beside the URL":     {[]string{"DATABASE_URL=" + strings.Replace(dsn, "/"+database, "/nowhere", 1)}, []string{"-d", database}},
		"DATABASE_URL before variables": {[]string{"DATABASE_URL=" + dsn, "PGHOST=nowhere.invalid", "PGDATABASE=nowhere"}, nil},
		"the file of passwords":         {[]string{"PGPASSFILE=" + passfile}, []string{"-h", host, "-p", port, "-U", user, "-d", database}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := run(t, tt.env, append([]string{"list"}, tt.args...)...); got.code != 0 || got.stdout != "no records\n" {
				t.Errorf("%+v", got)
			}
		})
	}
}
