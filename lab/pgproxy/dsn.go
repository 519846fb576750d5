package pgproxy

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Upstream returns where the server of a DSN listens, to be dialled without encryption.
func Upstream(dsn string) (network, address string, err error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return "", "", err
	}
	plain := config.TLSConfig == nil
	for _, other := range config.Fallbacks {
		plain = plain || other.TLSConfig == nil && other.Host == config.Host && other.Port == config.Port
	}
	if !plain {
		return "", "", errors.New("the DSN insists on TLS, which the proxy does not speak: use sslmode=disable")
	}
	network, address = pgconn.NetworkAddress(config.Host, config.Port)
	return network, address, nil
}

// Redirect returns the DSN with its host and port replaced. In both spellings of a DSN the last value of a key counts,
// and a key counts more than the authority of a URL: adding to the end is enough, and keeps everything else.
func Redirect(dsn string, to *net.TCPAddr) (string, error) {
	keys := []string{"host=" + to.IP.String(), "port=" + strconv.Itoa(to.Port), "sslmode=disable"}
	redirected := dsn + " " + strings.Join(keys, " ")
	if isURL(dsn) {
		redirected = dsn + querySeparator(dsn) + strings.Join(keys, "&")
	}
	before, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return "", err
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

// querySeparator looks behind the user and the password, which can contain a question mark.
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
