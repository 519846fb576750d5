package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

// changeTimeout limits the time of a change. The change continues if the browser disconnects.
const changeTimeout = 10 * time.Second

// said has the messages that a page shows after a change. The address to which the browser is
// redirected has the name of a message in the parameter said. It does not have the text, so that a
// link cannot make the page show another text.
var said = map[string]string{
	"retried":  "The operation is retried: a Worker, or a call with its key, resumes it.",
	"canceled": "The operation is canceled: a Worker, or a call with its key, undoes its steps.",
	"resolved": "The outcome is recorded: a Worker, or a call with its key, resumes the operation.",
	"redrive":  "The dead letter is redriven.",
	"dropped":  "The dead letter is deleted.",
}

// change makes the change that a form asks for. It returns the address to which the browser is
// redirected.
type change func(ctx context.Context, s *site, r *http.Request) (next string, err error)

var changes = map[string]change{
	"retry": ofOperation("retried", retry), "cancel": ofOperation("canceled", cancel), "resolve": ofOperation("resolved", resolve),
	"redrive": redrive, "drop": drop,
}

// post handles a form.
//
// The checks are in this order: the form exists, the page allows changes, the visitor may act, and
// the form has a reason. The forms to log in and to log out are handled without these checks.
func (s *site) post(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil {
		s.refuse(w, r, problem{http.StatusBadRequest, "The form cannot be read.", ""})
		return
	}
	parts, v := partsOf(r), s.visitor(r)
	do := changes[parts[len(parts)-1]]
	switch {
	case len(parts) == 1 && parts[0] == "login" && s.Token != "":
		s.login(w, r)
	case len(parts) == 1 && parts[0] == "logout" && s.Token != "":
		s.logout(w, r)
	case do == nil || len(parts) != 1:
		s.refuse(w, r, notFound)
	case s.ReadOnly || s.Token == "" && s.Person == nil:
		s.refuse(w, r, problem{http.StatusForbidden, "This page is read-only.", "Use the command, or start the page with idem ui --write."})
	case !v.Acts:
		s.refuse(w, r, problem{http.StatusUnauthorized, "The page does not know who you are. Nothing was changed.", "Log in first."})
	case strings.TrimSpace(r.PostFormValue("reason")) == "":
		s.refuse(w, r, problem{http.StatusBadRequest, "A change needs a reason. Nothing was changed.", "Go back and enter a reason, which is stored in idem.audit."})
	default:
		s.change(w, r, v.Person, do)
	}
}

// change calls do with a context that carries the name of the person and the reason. The library
// writes both to idem.audit. Afterwards change empties the cache of pages, so that the next page
// shows the new state.
func (s *site) change(w http.ResponseWriter, r *http.Request, person string, do change) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
	defer cancel()
	ctx = idem.WithReason(idem.WithPerson(ctx, person), strings.TrimSpace(r.PostFormValue("reason")))
	next, err := do(ctx, s, r)
	s.reads.forget()
	if err != nil {
		s.refuse(w, r, s.problemOfAct(err))
		return
	}
	seeOther(w, next)
}

// ofOperation returns a change that calls do for the operation whose id is in the form. The browser
// then returns to the page of the operation, which shows said[message].
func ofOperation(message string, do func(ctx context.Context, s *site, r *http.Request, id string) error) change {
	return func(ctx context.Context, s *site, r *http.Request) (string, error) {
		id, err := operationID(r.PostFormValue("id"))
		if err != nil {
			return "", err
		}
		return "./operations/" + id + "?said=" + message, do(ctx, s, r, id)
	}
}

func retry(ctx context.Context, s *site, _ *http.Request, id string) error {
	return operation.Retry(ctx, s.Pool, id)
}

func cancel(ctx context.Context, s *site, r *http.Request, id string) error {
	var opts []operation.CancelOption
	if r.PostFormValue("without_calling") != "" {
		opts = append(opts, operation.WithoutCalling())
	}
	if r.PostFormValue("without_code") != "" {
		opts = append(opts, operation.WithoutCode())
	}
	return operation.Cancel(ctx, s.Pool, id, opts...)
}

// resolve records the outcome of a call in doubt. It passes to Resolve the epoch for which the form
// was made: a number that grows each time a process takes over the operation. If the operation was
// resumed since then, Resolve fails.
func resolve(ctx context.Context, s *site, r *http.Request, id string) error {
	o, call, err := s.callInDoubt(ctx, id, r)
	if err != nil {
		return err
	}
	finding, err := findingOf(r, call.IsUndo())
	if err != nil {
		return err
	}
	if o.Input.SealedBy != "" && (r.PostFormValue("finding") != "not-happened" || !call.IsUndo()) {
		return problemError{problem{http.StatusConflict, "The values of the operation are sealed, so the outcome must be sealed too. Nothing was changed.",
			"Use the command, which seals with the same key: idem operation resolve --seal-keys."}}
	}
	return operation.Resolve(ctx, s.Pool, id, finding.As(operation.Status{Epoch: o.Epoch}).Of(call.Name))
}

// callInDoubt returns the operation and the call that a form names by id, epoch and seq. It returns
// operation.ErrNotParked if the operation has changed since the form was made.
func (s *site) callInDoubt(ctx context.Context, id string, r *http.Request) (o *record.Operation, call record.CallInDoubt, err error) {
	err = record.ReadOnly(ctx, s.Pool, s.Timeout, func(tx pgx.Tx) error {
		if o, err = record.FindOperation(ctx, tx, id); err != nil {
			return err
		}
		if o == nil {
			return operation.ErrUnknownOperation
		}
		steps, _, err := record.Timeline(ctx, tx, o, false)
		if err != nil {
			return err
		}
		for _, d := range record.CallsInDoubt(o, steps) {
			if o.State == record.Parked && r.PostFormValue("epoch") == strconv.Itoa(o.Epoch) && r.PostFormValue("seq") == strconv.Itoa(d.Seq) {
				call = d
				return nil
			}
		}
		return operation.ErrNotParked
	})
	return o, call, err
}

// findingOf returns the outcome that a form states. It fails if the outcome is missing, or if a
// required value or text is missing or invalid.
func findingOf(r *http.Request, isUndo bool) (finding operation.Finding, err error) {
	value, refusal := strings.TrimSpace(r.PostFormValue("value")), strings.TrimSpace(r.PostFormValue("refusal"))
	wrong := ""
	switch r.PostFormValue("finding") {
	case "happened":
		if isUndo {
			return operation.Happened(nil), nil
		}
		if json.Valid([]byte(value)) {
			return operation.Happened(json.RawMessage(value)), nil
		}
		wrong = "The returned value is not JSON. If the call returned nothing, enter null."
	case "not-happened":
		return operation.NotHappened, nil
	case "refused":
		if refusal != "" && !isUndo {
			return operation.Refused(errors.New(refusal)), nil
		}
		wrong = "A refusal needs the text of the other side, and an undo cannot be refused."
	default:
		wrong = "The outcome is missing: happened, not-happened or refused."
	}
	return finding, problemError{problem{http.StatusBadRequest, wrong + " Nothing was changed.", "Go back and correct the form."}}
}

// letterOf returns the name of the dead letter that a form is about. It fails if the name cannot be
// decoded or contains a zero byte, which Postgres does not store in text.
func letterOf(r *http.Request) (l db.LetterName, err error) {
	if unmark(r.PostFormValue("letter"), &l) != nil || strings.Contains(l.Side+l.Consumer+l.Source+l.ID, "\x00") {
		err = problemError{noLetter}
	}
	return l, err
}

// redrive redrives a dead letter. A dead letter of the inbox stays listed until it is handled, so
// the browser returns to the page of the dead letter. A dead letter of the outbox disappears, so
// the browser goes to the list.
func redrive(ctx context.Context, s *site, r *http.Request) (string, error) {
	l, err := letterOf(r)
	switch {
	case err != nil:
		return "", err
	case l.Side == deadletter.Inbox:
		return "./letter?" + linkOf(l) + "&said=redrive", inbox.Redrive(ctx, s.Pool, inbox.Ref{Consumer: l.Consumer, Source: l.Source, ID: l.ID})
	case l.Side != deadletter.Outbox:
		return "", problemError{noLetter}
	}
	if err := s.canOpen(ctx, l); err != nil {
		return "", err
	}
	return "./dead?said=redrive", outbox.Redrive(ctx, s.Pool, outbox.Ref{Topic: l.Source, ID: l.ID}, outbox.WithSealer(s.Sealer))
}

// canOpen returns an error if a dead letter of the outbox is sealed and the page has no Sealer.
func (s *site) canOpen(ctx context.Context, name db.LetterName) error {
	if s.Sealer != nil {
		return nil
	}
	var l *record.DeadLetter
	err := record.ReadOnly(ctx, s.Pool, s.Timeout, func(tx pgx.Tx) (err error) {
		l, err = findLetter(ctx, tx, name)
		return err
	})
	if err == nil && l.SealedBy != "" {
		err = problemError{problem{http.StatusConflict, "The dead letter is sealed, and the page has no keys. Nothing was changed.",
			"Start the page with --seal-keys, or use the command: idem dead redrive."}}
	}
	return err
}

// drop deletes a dead letter. It fails if the message was dead-lettered again since the form was
// made.
func drop(ctx context.Context, s *site, r *http.Request) (string, error) {
	name, err := letterOf(r)
	if err != nil {
		return "", err
	}
	died, err := strconv.ParseInt(r.PostFormValue("died"), 10, 64)
	if err != nil {
		return "", problemError{noLetter}
	}
	dropped, err := record.DropDeadLetter(ctx, s.Pool, changeTimeout, &record.DeadLetter{LetterName: name, DiedAt: time.UnixMicro(died)})
	if err == nil && !dropped {
		err = problemError{problem{http.StatusConflict, "The dead letter is gone, or the message failed again since the page was shown. Nothing was deleted.", "Reload the list."}}
	}
	return "./dead?said=dropped", err
}
