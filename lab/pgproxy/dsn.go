package pgproxy

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// redirect returns dsn with its host and port replaced by to, and with sslmode=disable. It appends
// the new values and leaves the rest of dsn alone: in both forms of a DSN the last value of a key
// wins, and a key overrides the authority of a URL. redirect fails if the result does not lead to
// the new address, or if the password came from a password file that is looked up by address.
func redirect(dsn string, before *pgconn.Config, to *net.TCPAddr) (string, error) {
	keys := []string{"host=" + to.IP.String(), "port=" + strconv.Itoa(to.Port), "sslmode=disable"}
	redirected := dsn + " " + strings.Join(keys, " ")
	if isURL(dsn) {
		redirected = dsn + querySeparator(dsn) + strings.Join(keys, "&")
	}
	after, err := pgconn.ParseConfig(redirected)
	if err != nil {
		return "", err
	}
	if after.Host != to.IP.String() || int(after.Port) != to.Port || after.TLSConfig != nil || len(after.Fallbacks) > 0 {
		return "", fmt.Errorf("the DSN cannot be redirected to %s", to)
	}
	if after.Password != before.Password {
		return "", errors.New("the password is kept in a file for the server's address: put it into the DSN")
	}
	return redirected, nil
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// querySeparator returns what has to stand between url and another query parameter. It skips the
// user and the password, which can contain a question mark.
func querySeparator(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	_, query, found := strings.Cut(rest, "?")
	switch {
	case !found:
		return "?"
	case query == "" || strings.HasSuffix(query, "&"):
		return ""
	}
	return "&"
}
