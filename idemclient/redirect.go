package idemclient

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/idem-go/idem/internal/keyheader"
)

// callFor returns the call that a request belongs to. After a redirect, http.Client sets
// req.Response to the response that caused the redirect. If that response belongs to no known call,
// the host for which the key was meant is unknown, so the key is not sent.
func (t *Transport) callFor(req *http.Request) *call {
	before := callOf(req.Response)
	if before == nil {
		return &call{method: method(req), first: req.URL, strayed: req.Response != nil, started: time.Now()}
	}
	c := &call{key: before.key, method: before.method, first: before.first, strayed: before.strayed, started: before.started}
	if c.key.value != "" && !c.strayed {
		c.strayed = !t.keyOnRedirect(c.first, req.URL)
	}
	return c
}

func (t *Transport) keyOnRedirect(first, next *url.URL) bool {
	if t.KeyOnRedirect != nil {
		return t.KeyOnRedirect(first, next)
	}
	return isDomainOrSubdomain(hostname(next), hostname(first))
}

// hostname returns the host name in lower case and in Punycode.
func hostname(u *url.URL) string {
	name := strings.ToLower(u.Hostname())
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		// net/http converts an internationalized name when it writes a request. net/http exports no
		// function for the conversion.
		var sent bytes.Buffer
		req := http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: name}}
		if req.Write(&sent) == nil {
			if read, err := http.ReadRequest(bufio.NewReader(&sent)); err == nil {
				name = read.Host
			}
		}
	}
	return name
}

// isDomainOrSubdomain reports whether sub is parent or a subdomain of it. An IP address has no
// subdomains, but the zone of an IPv6 address could look like a subdomain.
//
// Releases of Go differ in where net/http sends Authorization after a redirect. With this rule, the
// key is sent wherever any release sends Authorization. The reason is that a POST without its key
// is executed twice if it is sent twice.
func isDomainOrSubdomain(sub, parent string) bool {
	return sub == parent || !strings.ContainsAny(sub, ":%") && strings.HasSuffix(sub, "."+parent)
}

// leavesKeyBehind reports whether a redirect has led to a request that must not have the key: to a
// foreign host, or from a write to a GET.
func (c *call) leavesKeyBehind(req *http.Request) bool {
	return c.strayed || isSafe(req.Method) && !isSafe(c.method)
}

// removeKey removes the key that http.Client has copied from the header of the first request, and
// the number of the attempt. A header field without any value is not a key, and is not removed.
func (h *hop) removeKey(req *http.Request) {
	written, numbered := len(req.Header[h.keyHeader()]) > 0, len(req.Header[keyheader.Attempt]) > 0
	if !written && !numbered {
		return
	}
	req.Header = req.Header.Clone()
	req.Header.Del(keyheader.Attempt)
	if written {
		req.Header.Del(h.keyHeader())
	}
}
