package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/stats"
)

// problem is an error that a page shows: the HTTP status, a text, and what to do about it.
type problem struct {
	Status int
	Text   string
	Remedy string
}

var (
	notFound    = problem{http.StatusNotFound, "There is no such page.", ""}
	noOperation = problem{http.StatusNotFound, "There is no such operation.", "It was a single transaction, or it was purged with its record. idem list has records."}
	noLetter    = problem{http.StatusNotFound, "There is no such dead letter.", "It was redriven and handled, or dropped. See What people did."}
)

// problemOf returns the problem to show for an error that occurred while a page was read.
func (s *site) problemOf(ctx context.Context, err error) problem {
	var known problemError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &known):
		return known.problem
	case errors.Is(err, errBusy):
		return problem{http.StatusServiceUnavailable, "Too many pages are being read.", "Try again in some seconds."}
	case errors.Is(err, stats.ErrNoSchema):
		return noSchema
	case errors.As(err, &server) && server.Code == insufficientPrivilege:
		return s.lacking(ctx, server)
	case errors.As(err, &server):
		return problemAt(server)
	case errors.Is(err, context.DeadlineExceeded):
		return problem{http.StatusGatewayTimeout, "The database did not answer in time.", "See idem doctor and idem stuck."}
	}
	text := address.Refused(err).Error()
	return problem{http.StatusBadGateway, strings.ToUpper(text[:1]) + text[1:] + ".", ""}
}

// problemError is an error that carries the problem to show.
type problemError struct{ problem }

func (e problemError) Error() string { return "ui: " + e.Text }

const insufficientPrivilege = "42501"

var noSchema = problem{http.StatusServiceUnavailable, "The schema of idem is missing or out of date in this database.", "Run idem migrate up, or check the address of the database."}

// problemAt returns the problem to show for an error that Postgres returned.
func problemAt(err *pgconn.PgError) problem {
	status := map[string]int{
		"55P03": http.StatusConflict, "25006": http.StatusConflict, // lock_not_available, read_only_sql_transaction
		"57P01": http.StatusServiceUnavailable, "57P02": http.StatusServiceUnavailable, "57P03": http.StatusServiceUnavailable, // shutdown
	}[err.Code]
	switch err.Code {
	case "42P01", "3F000", "42703": // undefined_table, invalid_schema_name, undefined_column
		return noSchema
	case "57014": // query_canceled
		return problem{http.StatusGatewayTimeout, "The statement took longer than this page allows.", "Use the filters of the list, or the command with --timeout."}
	}
	return problem{cmp.Or(status, http.StatusBadGateway), fmt.Sprintf("The database reports: %s (SQLSTATE %s).", err.Message, err.Code), record.Remedy(err.Code)}
}

// lacking returns a problem with the GRANT statements that the role of the page needs. If it cannot
// find out which privileges are missing, it refers to the documentation.
func (s *site) lacking(ctx context.Context, refused *pgconn.PgError) problem {
	p := problem{http.StatusForbidden, fmt.Sprintf("The role of this page lacks a privilege: %s (SQLSTATE %s).", refused.Message, refused.Code),
		"docs/operate.md has a role for people on call."}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var lacks record.MissingPrivileges
	err := record.ReadOnly(ctx, s.Pool, s.Timeout, func(tx pgx.Tx) (err error) {
		lacks, err = record.ReadMissingPrivileges(ctx, tx)
		return err
	})
	if err != nil {
		return p
	}
	var grants []string
	if lacks.Schema {
		grants = append(grants, "GRANT USAGE ON SCHEMA idem TO "+lacks.Role+";")
	}
	if len(lacks.Tables) > 0 {
		grants = append(grants, "GRANT SELECT ON "+strings.Join(lacks.Tables, ", ")+" TO "+lacks.Role+";")
	}
	if len(grants) > 0 {
		p.Remedy = strings.Join(grants, " ")
	}
	return p
}

// problemOfAct returns the problem to show for an error of a change.
func (s *site) problemOfAct(err error) problem {
	var server *pgconn.PgError
	switch {
	case errors.Is(err, operation.ErrUnknownOperation):
		return noOperation
	case errors.Is(err, operation.ErrNotParked):
		return problem{http.StatusConflict, "The operation has changed since it was read. Nothing was changed.", "Reload its page."}
	case errors.Is(err, inbox.ErrNoDeadLetter): // outbox.ErrNoDeadLetter is the same value
		return noLetter
	case errors.As(err, new(*txn.UnknownError)), errors.Is(err, record.ErrUnknown):
		return problem{http.StatusBadGateway, "The database did not answer COMMIT: the change may or may not be made.", "The page What people did lists the change if it was made."}
	case errors.As(err, &server) && server.Code == insufficientPrivilege:
		return problem{http.StatusForbidden, fmt.Sprintf("The role of this page lacks a privilege: %s (SQLSTATE %s). Nothing was changed.", server.Message, server.Code),
			"A change needs INSERT on idem.audit and privileges on the changed tables: see docs/operate.md."}
	}
	return s.problemOf(context.Background(), err)
}
