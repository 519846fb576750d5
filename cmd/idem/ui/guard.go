package ui

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy. A page may load files from its own origin only, and inline
// scripts and styles do not run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard sets the security headers of a response.
func guard(h http.Header) {
	// With the Referrer-Policy no-referrer, a browser sends "Origin: null" with a form.
	for name, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Cache-Control":                "no-store",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		h.Set(name, value)
	}
}

// hasHost reports whether the Host of the request is one of the names in Config.Hosts. It protects
// against DNS rebinding, by which a foreign page makes its own name resolve to the address of this
// one.
func (s *site) hasHost(r *http.Request) bool {
	return len(s.Hosts) == 0 || slices.ContainsFunc(s.Hosts, func(name string) bool { return hostName(name) == hostName(r.Host) })
}

// hostName returns a host in lower case, without port, brackets and trailing dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// isSameOrigin reports whether a page of the same origin sent the form. It protects against
// cross-site request forgery. A browser states the site in Sec-Fetch-Site, or on an unencrypted
// connection only the origin in Origin. A request with neither is refused, because every browser
// sends one of them with a form.
func isSameOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}
