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
// connection, after the host name was resolved. So no host name and no redirect can lead to this
// machine, to its network, or to the metadata service of a cloud. It uses no proxy. A program that
// uses a proxy must check addresses in the proxy. The transport cannot distinguish your own public
// addresses from others.
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

// refuseNotPublic returns ErrNotPublic for an address that is not public. It is a
// net.Dialer.Control.
func refuseNotPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(to.Addr()) {
		return ErrNotPublic
	}
	return nil
}

// isPublic reports whether an address is globally reachable. It returns false for an address with
// an IPv6 zone, because no netip.Prefix contains such an address.
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

// globalUnicast is the part of IPv6 from which networks get their public addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// notPublic contains the networks that are not globally reachable according to IANA's registries of
// special-purpose addresses. It also contains the IPv6 networks whose addresses embed IPv4
// addresses.
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

// onlyHTTPS refuses requests to URLs that are not https.
type onlyHTTPS struct{ http.RoundTripper }

func (o onlyHTTPS) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("%w: the scheme is %q", ErrNotPublic, request.URL.Scheme)
	}
	return o.RoundTripper.RoundTrip(request)
}
