package address

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Describe returns the host, database and role of a connection in one line, without the password.
func Describe(c *pgconn.Config) string {
	where := fmt.Sprintf("%s:%d", c.Host, c.Port)
	if strings.HasPrefix(c.Host, "/") {
		where = fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	return fmt.Sprintf("%s, database %q, role %q", where, c.Database, c.User)
}

// Refused turns the error of a failed connection into one line with the cause and a remedy. If
// several hosts were tried, it lists the cause for each: with one standby down, a person must not
// look for the fault at the primary. Other errors are returned as they are.
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

// attempts returns the last error of each host, or nil if there was only one host. With
// sslmode=prefer, pgx connects to each host twice.
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

// adviceOf returns the remedy for a SQLSTATE that a server answers at connection.
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

// lastLine returns the last line of an error: pgconn lists the attempts before the cause.
func lastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
