package address

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Describe says in one line where a connection goes to, without the password.
func Describe(c *pgconn.Config) string {
	where := fmt.Sprintf("%s:%d", c.Host, c.Port)
	if strings.HasPrefix(c.Host, "/") {
		where = fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	return fmt.Sprintf("%s, database %q, role %q", where, c.Database, c.User)
}

// Refused turns the error of a connection that did not come about into one line that says what to do.
func Refused(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	var server *pgconn.PgError
	var lookup *net.DNSError
	cause, remedy := "", ""
	switch {
	case errors.As(err, &server):
		cause, remedy = server.Message, adviceOf(server.Code)
	case errors.As(err, &lookup):
		cause, remedy = "there is no such host", "check the host: -h, DATABASE_URL or PGHOST"
	case errors.Is(err, syscall.ECONNREFUSED):
		cause, remedy = "connection refused", "check that the server runs, and the address: -h and -p, DATABASE_URL, PGHOST and PGPORT"
	case errors.Is(err, os.ErrNotExist):
		cause, remedy = "there is no such socket", "give a host: -h, DATABASE_URL or PGHOST"
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		cause, remedy = "no answer", "check the address and the network, or set PGCONNECT_TIMEOUT higher"
	default:
		cause, remedy = lastLine(connect.Unwrap()), "check the address: -d, DATABASE_URL, PGHOST, PGSSLMODE"
	}
	return fmt.Errorf("cannot connect to %s: %s; %s", Describe(connect.Config), cause, remedy)
}

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

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// lastLine is the reason behind a list of attempts.
func lastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
