package webhook

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// PublicTransport returns a transport for URLs that strangers give. It looks at the address that it connects to, after the
// name was resolved, so no name and no redirect leads to the machine itself, the network it is in, or a cloud's metadata. It
// uses no proxy: with one, the proxy has to guard. It does not know which public addresses are yours.
func PublicTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: refuseNotPublic}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           1000,
		MaxIdleConnsPerHost:    perEndpoint,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// refuseNotPublic is asked before each connection.
func refuseNotPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(to.Addr()) {
		return ErrNotPublic
	}
	return nil
}

// isPublic reports whether an address is one that all can reach. One with a zone is in no network.
func isPublic(address netip.Addr) bool {
	address = address.Unmap()
	if address.Is6() && !global.Contains(address) {
		return false
	}
	for _, network := range notPublic {
		if network.Contains(address) {
			return false
		}
	}
	return true
}

// global is all of IPv6 that is given out to networks.
var global = netip.MustParsePrefix("2000::/3")

// notPublic is what IANA's registries of special-purpose addresses have that is not for all, and of IPv6 what may lead
// to an address of IPv4.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func prefixes(texts ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		parsed[i] = netip.MustParsePrefix(text)
	}
	return parsed
}

// onlyHTTPS refuses what would be sent for all to read.
type onlyHTTPS struct{ http.RoundTripper }

func (o onlyHTTPS) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("%w: it is %q", ErrNotPublic, request.URL.Scheme)
	}
	return o.RoundTripper.RoundTrip(request)
}
