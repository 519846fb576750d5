package webhook

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// PublicTransport returns a transport for URLs that customers choose. It checks the address of each
// connection, after the name was resolved. So no name and no redirect leads to the machine itself,
// to its network, or to the metadata of a cloud. It uses no proxy: with a proxy, the proxy has to
// check addresses. It cannot tell your own public addresses from others.
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

// refuseNotPublic implements net.Dialer.Control.
func refuseNotPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(to.Addr()) {
		return ErrNotPublic
	}
	return nil
}

// isPublic reports whether an address is globally reachable. An address with a zone is not, because
// no prefix contains it.
func isPublic(address netip.Addr) bool {
	address = address.Unmap()
	if address.Is6() && !globalUnicast.Contains(address) {
		return false
	}
	for _, network := range notPublic {
		if network.Contains(address) {
			return false
		}
	}
	return true
}

// globalUnicast is the part of IPv6 that is assigned to networks.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// notPublic has the networks in IANA's registries of special-purpose addresses that are not
// globally reachable. It also has the networks of IPv6 that embed addresses of IPv4.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func prefixes(texts ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		parsed[i] = netip.MustParsePrefix(text)
	}
	return parsed
}

// onlyHTTPS refuses requests that are not encrypted.
type onlyHTTPS struct{ http.RoundTripper }

func (o onlyHTTPS) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("%w: the scheme is %q", ErrNotPublic, request.URL.Scheme)
	}
	return o.RoundTripper.RoundTrip(request)
}
