// Package address determines the address of the database in the way of psql: from flags, from a URL
// or a connection string, and from environment variables.
package address

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Flags are the connection flags of psql.
type Flags struct {
	DBName   string `name:"dbname" short:"d" placeholder:"NAME|URL" help:"Database, by name, URL or connection string. Default: $DATABASE_URL, then PGDATABASE and the other variables that psql reads."`
	Host     string `short:"h" placeholder:"HOST" help:"Host, or directory of the socket."`
	Port     uint16 `short:"p" placeholder:"PORT" help:"Port."`
	Username string `short:"U" placeholder:"ROLE" help:"Role. The password comes from PGPASSWORD or ~/.pgpass; the command never asks for one."`
}

// String returns the connection string for the flags and DATABASE_URL. pgx fills in all other
// settings from ~/.pgpass and from PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGSSLMODE,
// PGSERVICE and so on. The flags are appended, because the last value of a setting counts.
func (f Flags) String(getenv func(string) string) string {
	base, name := f.DBName, ""
	if !isAddress(base) {
		base, name = getenv("DATABASE_URL"), f.DBName
	}
	port := ""
	if f.Port > 0 {
		port = strconv.Itoa(int(f.Port))
	}
	settings := [][2]string{{"host", f.Host}, {"port", port}, {"user", f.Username}, {"dbname", name}}
	if isURL(base) {
		return withQuery(base, settings)
	}
	return withSettings(base, settings)
}

// Config returns the pool configuration of a command. The pool is small, and it sends statements in
// a mode that works behind a pooler in transaction mode: it prepares no named statement, which a later
// transaction would look for on another connection. Config fails if the address is malformed. Its
// errors do not show passwords.
func (f Flags) Config(getenv func(string) string, command string) (*pgxpool.Config, error) {
	for from, text := range map[string]string{"-d": f.DBName, "DATABASE_URL": getenv("DATABASE_URL")} {
		if err := checkScheme(from, text); err != nil {
			return nil, err
		}
	}
	config, err := pgxpool.ParseConfig(f.String(getenv))
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = 4, 0
	// Times are in UTC, whatever the local time zone, so that people in two places see the same.
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
		return nil
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "idem " + command
	}
	return config, nil
}

// connectTimeout applies if PGCONNECT_TIMEOUT is not set.
const connectTimeout = 10 * time.Second

// checkScheme rejects a URL of another kind of server. pgx would take the URL for the name of a
// database and quote it in errors, with its password.
func checkScheme(from, text string) error {
	scheme, _, found := strings.Cut(text, "://")
	if !found || isURL(text) || strings.Contains(scheme, "=") { // a key-value string may have a URL as a value
		return nil
	}
	return fmt.Errorf("%s is a URL that begins with %.20q, and not with postgres:// or postgresql://", from, scheme+"://")
}

// isURL reports whether text is a URL that pgx accepts.
func isURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// isAddress reports whether text is a URL or a connection string, and not the name of a database.
func isAddress(text string) bool { return isURL(text) || strings.Contains(text, "=") }

// withQuery adds settings to the query of a URL. The last value of a name counts, and the query
// takes precedence over the rest of the URL.
func withQuery(base string, settings [][2]string) string {
	separator := "?"
	if strings.Contains(base, "?") {
		separator = "&"
	}
	for _, s := range settings {
		if s[1] != "" {
			base += separator + s[0] + "=" + url.QueryEscape(s[1])
			separator = "&"
		}
	}
	return base
}

// withSettings adds settings to a connection string, in which the last value of a name counts.
func withSettings(base string, settings [][2]string) string {
	text := base
	for _, s := range settings {
		if s[1] != "" {
			text += " " + s[0] + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s[1]) + "'"
		}
	}
	return strings.TrimSpace(text)
}
