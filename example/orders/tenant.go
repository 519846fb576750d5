package main

import (
	"net/http"
	"strings"
)

// credentials maps a secret to the tenant for whom it speaks. It stands in for the authentication that you have.
type credentials map[string]string

// demoCredentials gives acme two of them, as during a rotation.
func demoCredentials() credentials {
	return credentials{"acme-key": "acme", "acme-next-key": "acme", "globex-key": "globex"}
}

// tenant returns who sends the request.
func (c credentials) tenant(r *http.Request) (string, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if tenant, known := c[secret]; known && strings.EqualFold(scheme, "Bearer") {
		return tenant, nil
	}
	return "", unauthorized()
}
