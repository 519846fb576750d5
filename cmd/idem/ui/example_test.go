package ui_test

import (
	"log"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/ui"
)

var (
	pool     *pgxpool.Pool
	loggedIn func(*http.Request) string           // the name of the person who sent a request
	required func(next http.Handler) http.Handler // redirects other visitors to the login
)

// A program mounts the page behind its login. Changes are recorded with the name of the person.
func Example() {
	page, err := ui.New(ui.Config{Pool: pool, Person: loggedIn})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/idem/", required(http.StripPrefix("/idem", page)))
}
