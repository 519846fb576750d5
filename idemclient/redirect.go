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

// callFor returns the call that a request belongs to. http.Client says by req.Response which response has redirected it
// here; if that is not known to be of a call, nor is the host that the key was meant for.
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

// hostname returns the name of the host in lower case, and in ASCII as it is sent over the network.
func hostname(u *url.URL) string {
	name := strings.ToLower(u.Hostname())
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		// net/http converts an internationalized name when it writes a request, and exports no other way to do it.
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

// isDomainOrSubdomain reports whether sub is parent or a subdomain of it. The zone of an IPv6 address may look like a domain,
// so an address has no subdomains.
//
// The rule is the package's own: releases of Go differ in where net/http sends Authorization. The key goes wherever any of
// them sends it, because a POST without its key is executed twice if it is sent again.
func isDomainOrSubdomain(sub, parent string) bool {
	return sub == parent || !strings.ContainsAny(sub, ":%") && strings.HasSuffix(sub, "."+parent)
}

// leavesKeyBehind reports whether a redirect has led to a request that must not have the key: to a foreign host, or from a
// write to a GET.
func (c *call) leavesKeyBehind(req *http.Request) bool {
	return c.strayed || isSafe(req.Method) && !isSafe(c.method)
}

// removeKey removes the key that http.Client has copied from the header of the first request, and a number, which means
// nothing without a key. A header without any value is no key, and stays.
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
