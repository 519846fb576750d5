package ui

import (
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

// problem describes an error to the visitor, with a remedy.
type problem struct {
	Status int
	Text   string
	Remedy string
}

var (
	notFound    = problem{http.StatusNotFound, "There is no such page.", ""}
	noOperation = problem{http.StatusNotFound, "There is no such operation.", "It was one transaction, or was purged with its record. idem list has records."}
	noLetter    = problem{http.StatusNotFound, "There is no such dead letter.", "It was redriven and handled, or dropped. The acts tell who did that."}
)

// problemOf returns the problem for an error of a reading.
func (s *site) problemOf(ctx context.Context, err error) problem {
	var known problemError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &known):
		return known.problem
	case errors.Is(err, errBusy):
		return problem{http.StatusServiceUnavailable, "Too many pages are being read at this moment.", "Try again in some seconds."}
	case errors.Is(err, stats.ErrNoSchema):
		return noSchema
	case errors.As(err, &server) && server.Code == insufficientPrivilege:
		return s.lacking(ctx, server)
	case errors.As(err, &server):
		return problemAt(server)
	case errors.Is(err, context.DeadlineExceeded):
		return problem{http.StatusGatewayTimeout, "The database has not answered in time.", "See what it is busy with: idem doctor, idem stuck."}
	}
	text := address.Refused(err).Error()
	return problem{http.StatusBadGateway, strings.ToUpper(text[:1]) + text[1:] + ".", ""}
}

// problemError is a problem that the page found itself.
type problemError struct{ problem }

func (e problemError) Error() string { return "ui: " + e.Text }

const insufficientPrivilege = "42501"

var noSchema = problem{http.StatusServiceUnavailable, "The schema of idem is missing or out of date in this database.", "Run: idem migrate up. Or is this another database than you meant?"}

// problemAt returns the problem for an error of the server.
func problemAt(err *pgconn.PgError) problem {
	said := fmt.Sprintf("The database says: %s (SQLSTATE %s).", err.Message, err.Code)
	switch err.Code {
	case "42P01", "3F000", "42703":
		return noSchema
	case "57014":
		return problem{http.StatusGatewayTimeout, "The statement took longer than this page may.", "Narrow it down by the fields above the list, or use the command, with --timeout."}
	case "55P03":
		return problem{http.StatusConflict, said, "Another session holds a lock on it. Try again, or see which one does under In flight."}
	case "25006":
		return problem{http.StatusConflict, said, "This is a standby, or a role that may only read: have the page connect to the primary, as a role that may act."}
	case "57P01", "57P02", "57P03":
		return problem{http.StatusServiceUnavailable, said, "The server is going down or coming up: try again."}
	}
	return problem{http.StatusBadGateway, said, ""}
}

// lacking returns a problem with the grants that the role of the page lacks.
func (s *site) lacking(ctx context.Context, refused *pgconn.PgError) problem {
	p := problem{http.StatusForbidden, fmt.Sprintf("The role of this page may not: %s (SQLSTATE %s).", refused.Message, refused.Code),
		"docs/operate.md has a role for people on call."}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var lacks record.Lacking
	err := record.Look(ctx, s.Pool, s.Timeout, func(tx pgx.Tx) (err error) {
		lacks, err = record.Lacks(ctx, tx)
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

// problemOfAct returns the problem for an error of a change.
func (s *site) problemOfAct(err error) problem {
	var server *pgconn.PgError
	switch {
	case errors.Is(err, operation.ErrUnknownOperation):
		return noOperation
	case errors.Is(err, operation.ErrNotParked):
		return problem{http.StatusConflict, "The operation has changed since it was read, and nothing was changed.", "Look at it again."}
	case errors.Is(err, inbox.ErrNoDeadLetter): // outbox.ErrNoDeadLetter is the same error
		return noLetter
	case errors.As(err, new(*txn.UnknownError)), errors.Is(err, record.ErrUnknown):
		return problem{http.StatusBadGateway, "The database has not answered COMMIT: the change is made, or it is not.", "Look again: the acts have it if it was made."}
	case errors.As(err, &server) && server.Code == insufficientPrivilege:
		return problem{http.StatusForbidden, fmt.Sprintf("The role of this page may not: %s (SQLSTATE %s). Nothing was changed.", server.Message, server.Code),
			"To act, a role needs INSERT on idem.audit, and what the act changes: see docs/operate.md."}
	}
	return s.problemOf(context.Background(), err)
}
