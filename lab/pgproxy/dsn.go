package pgproxy

import (
	"errors"
	"net"
	"net/url"
)

// redirect returns a DSN that leads to another address, with sslmode=disable. The given DSN must be
// a URL.
func redirect(dsn string, to net.Addr) (string, error) {
	address, err := url.Parse(dsn)
	if err != nil || address.Scheme == "" {
		return "", errors.New("the DSN must be a URL") // err is not returned, because its message contains the password
	}
	address.Host = to.String()
	parameters := address.Query()
	parameters.Del("host") // in a URL without a host, this parameter is the directory of a Unix socket
	parameters.Del("port")
	parameters.Set("sslmode", "disable")
	address.RawQuery = parameters.Encode()
	return address.String(), nil
}
