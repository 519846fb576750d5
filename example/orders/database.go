package main

import (
	"context"
	"errors"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fulfilmentDatabase returns the address of fulfilment's database. The environment variable
// FULFILMENT_DATABASE_URL sets it. Without the variable, it is a database on the server of the
// shop's database, which fulfilmentDatabase creates if necessary.
func fulfilmentDatabase(ctx context.Context, databaseURL string) (string, error) {
	if given := os.Getenv("FULFILMENT_DATABASE_URL"); given != "" {
		return given, nil
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	name := conn.Config().Database + "_fulfilment"
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == "42P04" { // duplicate_database
		err = nil
	}
	if err != nil {
		return "", err
	}
	address, err := url.Parse(databaseURL)
	if err != nil || address.Scheme == "" {
		return databaseURL + " dbname=" + name, nil // keyword/value format: the last dbname wins
	}
	address.Path = "/" + name
	return address.String(), nil
}
