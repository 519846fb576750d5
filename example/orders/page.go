package main

import (
	"embed"
	"io/fs"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed page
var pageFiles embed.FS

// withPage puts the page at / in front of the service: a shop to try retries in, what it reads from the database, and the
// accidents that it can ask for. The service has no part in any of them.
func withPage(pool *pgxpool.Pool, credentials credentials, service http.Handler) http.Handler {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the name is a constant
	}
	page := selfContained(http.FileServerFS(files))
	mux := http.NewServeMux()
	mux.Handle("/", service)
	mux.Handle("POST /orders", &mishaps{pool, credentials, service})
	mux.Handle("POST /checkouts", &mishaps{pool, credentials, service})
	mux.Handle("GET /books", &books{pool, credentials})
	mux.Handle("GET /{$}", page)
	for _, name := range pageNames(files) {
		mux.Handle("GET /"+name, page)
	}
	return mux
}

func pageNames(files fs.FS) []string {
	names, err := fs.Glob(files, "*.*")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}

// selfContained lets a page load and ask for nothing but what this service has.
func selfContained(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
