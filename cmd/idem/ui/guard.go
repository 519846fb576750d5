package ui

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy: the browser loads files of this origin only, and runs no
// inline scripts and styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard sets the security headers of every response.
func guard(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Cache-Control":                "no-store",
		"Referrer-Policy":              "same-origin", // with no-referrer, browsers send a form with Origin: null
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		h.Set(name, value)
	}
}

// answers reports whether the request is for one of Config.Hosts.
func (s *site) answers(r *http.Request) bool {
	return len(s.Hosts) == 0 || slices.ContainsFunc(s.Hosts, func(name string) bool { return bare(name) == bare(r.Host) })
}

// bare returns a host name in lower case, without port, brackets and trailing dot.
func bare(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// fromHere reports whether a page of this origin sent the form. Browsers send Sec-Fetch-Site, or on
// an unencrypted connection Origin. A request with neither header is rejected, because no browser
// sends a form like that.
func fromHere(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}
