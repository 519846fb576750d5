package idemclient

import (
	"cmp"
	"net/http"
)

func method(req *http.Request) string {
	return cmp.Or(req.Method, http.MethodGet)
}

// host is where a request goes; it may be one that net/http will refuse.
func host(req *http.Request) string {
	if req.URL == nil {
		return req.Host
	}
	return req.URL.Host
}

// isSafe reports whether a method asks for nothing to be done, so that a key has no meaning for it.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isIdempotent reports whether a method says by itself that to do it twice is to do it once.
func isIdempotent(method string) bool {
	return isSafe(method) || method == http.MethodPut || method == http.MethodDelete
}
