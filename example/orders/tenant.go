package main

import (
	"net/http"
	"strings"
)

// credentials maps a secret to the tenant that it authenticates. It stands in for a real
// authentication.
type credentials map[string]string

// demoCredentials returns the credentials of two tenants. acme has two credentials, as during a
// rotation.
func demoCredentials() credentials {
	return credentials{"acme-key": "acme", "acme-next-key": "acme", "globex-key": "globex"}
}

// tenant returns the tenant that sent r. It returns a problem with status 401 if the credential is
// missing or unknown.
func (c credentials) tenant(r *http.Request) (string, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if tenant, known := c[secret]; known && strings.EqualFold(scheme, "Bearer") {
		return tenant, nil
	}
	return "", unauthorized()
}

// only returns a handler that calls serve with the tenant that sent the request. It refuses
// requests without a valid credential.
func (c credentials) only(serve func(w http.ResponseWriter, r *http.Request, tenant string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tenant, err := c.tenant(r)
		if err != nil {
			refuse(w, r, err)
			return
		}
		serve(w, r, tenant)
	}
}

// reads returns the handler of a read-only request. The answer is what read returns for the tenant
// that sent the request, as JSON.
func (c credentials) reads(read func(r *http.Request, tenant string) (any, error)) http.HandlerFunc {
	return c.only(func(w http.ResponseWriter, r *http.Request, tenant string) {
		found, err := read(r, tenant)
		if err != nil {
			refuse(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, found)
	})
}
