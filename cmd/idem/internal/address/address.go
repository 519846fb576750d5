// Package address determines the address of the database as psql does: from flags, from a URL or a
// connection string, and from environment variables.
package address

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
// PGSERVICE and so on. The flags are appended to DATABASE_URL, because the last value of a setting
// counts.
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

// Config returns the pool configuration of a command. The pool is small. It prepares no named
// statements, so it works behind a pooler in transaction mode, which may run the next transaction
// on a server connection without the prepared statement. Config fails if the address is malformed.
// Its errors contain no passwords.
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
	// Times are in UTC, and not in the local time zone, so that people in different places see the
	// same times.
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

// connectTimeout limits an attempt to connect if PGCONNECT_TIMEOUT is not set.
const connectTimeout = 10 * time.Second

// checkScheme rejects a URL whose scheme is not that of Postgres. pgx would take such a URL for the
// name of a database, and would show it in errors together with the password.
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

// withQuery adds settings to the query of a URL. If a name occurs twice, the last value counts. The
// query takes precedence over the rest of the URL.
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

// withSettings adds settings to a connection string. If a name occurs twice, the last value counts.
func withSettings(base string, settings [][2]string) string {
	text := base
	for _, s := range settings {
		if s[1] != "" {
			text += " " + s[0] + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s[1]) + "'"
		}
	}
	return strings.TrimSpace(text)
}

// Describe returns the host, database and role of a connection in one line, without the password.
func Describe(c *pgconn.Config) string {
	where := fmt.Sprintf("%s:%d", c.Host, c.Port)
	if strings.HasPrefix(c.Host, "/") {
		where = fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	return fmt.Sprintf("%s, database %q, role %q", where, c.Database, c.User)
}

// Refused turns the error of a failed connection into one line with the cause and a remedy. If
// several hosts were tried, it lists the cause for each host, so that a person sees which of them
// fails and why. It returns other errors unchanged.
func Refused(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	tried := attempts(connect)
	if len(tried) < 2 {
		cause, remedy := reason(connect.Unwrap())
		return fmt.Errorf("cannot connect to %s: %s; %s", Describe(connect.Config), cause, remedy)
	}
	var causes []string
	remedies := map[string]bool{}
	for _, a := range tried {
		cause, remedy := reason(a.err)
		causes = append(causes, a.host+": "+cause)
		remedies[remedy] = true
	}
	return fmt.Errorf("cannot connect to database %q, role %q: %s; %s", connect.Config.Database, connect.Config.User,
		strings.Join(causes, "; "), strings.Join(slices.Sorted(maps.Keys(remedies)), "; "))
}

// attempt is the failed connection to one of several hosts.
type attempt struct {
	host string
	err  error
}

// attempts returns the last error of each host, or nil if there was only one host. A host may have
// two errors, because with sslmode=prefer pgx tries each host twice.
func attempts(connect *pgconn.ConnectError) (tried []attempt) {
	hosts := map[string]bool{fmt.Sprint(connect.Config.Host, connect.Config.Port): true}
	for _, f := range connect.Config.Fallbacks {
		hosts[fmt.Sprint(f.Host, f.Port)] = true
	}
	var all interface{ Unwrap() []error }
	if len(hosts) < 2 || !errors.As(connect.Unwrap(), &all) {
		return nil
	}
	for _, err := range all.Unwrap() {
		// pgconn does not say which host an error is from, except in its text.
		address, _, named := strings.Cut(err.Error(), " (")
		if !named {
			return nil
		}
		if n := len(tried); n > 0 && tried[n-1].host == address {
			tried[n-1].err = err
			continue
		}
		tried = append(tried, attempt{address, err})
	}
	return tried
}

// reason returns the cause of a failed connection and a remedy.
func reason(err error) (cause, remedy string) {
	var server *pgconn.PgError
	var lookup *net.DNSError
	switch {
	case errors.As(err, &server):
		return server.Message, adviceOf(server.Code)
	case errors.As(err, &lookup):
		return "there is no such host", "check the host: -h, DATABASE_URL or PGHOST"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", "check that the server runs, and the address: -h and -p, DATABASE_URL, PGHOST and PGPORT"
	case errors.Is(err, os.ErrNotExist):
		return "there is no such socket", "give a host: -h, DATABASE_URL or PGHOST"
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		return "no answer", "check the address and the network, or set PGCONNECT_TIMEOUT higher"
	}
	return lastLine(err), "check the address: -d, DATABASE_URL, PGHOST, PGSSLMODE"
}

// adviceOf returns the remedy for the SQLSTATE with which a server refused a connection.
func adviceOf(code string) string {
	switch code {
	case "28P01", "28000":
		return "check the role and its password: -U, PGUSER, PGPASSWORD, ~/.pgpass, and pg_hba.conf"
	case "3D000":
		return "check the name of the database: -d, DATABASE_URL or PGDATABASE"
	case "53300":
		return "wait for a connection to become free, or connect as a superuser, for whom some are reserved"
	case "57P03":
		return "wait until the server has started"
	}
	return "check the address: -d, DATABASE_URL, PGHOST"
}

// isTimeout reports whether err is the timeout of a network operation.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// lastLine returns the last line of an error, in which pgconn states the cause after a list of
// attempts.
func lastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
