package ui

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy is what the browser may load: what comes from here as a file, and nothing that is written into a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard sets the headers of every answer.
func guard(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Cache-Control":                "no-store",
		"Referrer-Policy":              "same-origin", // with no-referrer, a browser does not tell the origin of a form
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		h.Set(name, value)
	}
}

// answers reports whether the page is asked for by a name of its own.
func (s *site) answers(r *http.Request) bool {
	return len(s.Hosts) == 0 || slices.ContainsFunc(s.Hosts, func(name string) bool { return bare(name) == bare(r.Host) })
}

// bare is the name of a host without its port.
func bare(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// fromHere reports whether a form was sent by a page of this origin. A browser says so by Sec-Fetch-Site, or by Origin where the connection is not
// encrypted. What says neither is refused as well: no browser sends a form like that.
func fromHere(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}
