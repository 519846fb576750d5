package personality

import (
	"slices"
	"strings"

	"github.com/idem-go/idem/lab/pgproxy"
)

// Personality is what a server, or a pooler, refuses and does otherwise.
type Personality struct {
	Name    string
	Sources []string // where that is written

	Settings  string             // of a session, as the server has them by itself: -c name=value
	Functions map[string]Refusal // by their names, without a schema
	Sets      map[string]Refusal // set_config of these settings, whether local or not
	Commands  map[string]Refusal // statements that begin with these words
	Startup   map[string]Refusal // parameters that a client may not begin a session with

	// Instead are functions that are there and do something else: what follows CREATE FUNCTION and a schema, for each of their forms.
	Instead map[string][]string
}

// Refusal is the error that answers a statement.
type Refusal struct{ Code, Message string }

func (p *Personality) String() string { return p.Name }

// refusal returns the error that answers a statement, nil if it is let through.
func (p *Personality) refusal(statement string) *Refusal {
	command := pgproxy.Command(statement) + " "
	for words, refusal := range p.Commands {
		if strings.HasPrefix(command, words+" ") {
			return &refusal
		}
	}
	for _, call := range pgproxy.Calls(statement) {
		if refusal, ok := p.Functions[call.Function]; ok {
			return &refusal
		}
		if refusal, ok := p.Sets[call.First]; ok && call.Function == "set_config" {
			return &refusal
		}
	}
	return nil
}

// schema has the functions of Instead.
const schema = "personality"

// instead names the functions that do something else.
func (p *Personality) instead(sql string) string {
	calls := pgproxy.Calls(sql)
	slices.Reverse(calls)
	for _, call := range calls {
		if _, ok := p.Instead[call.Function]; ok {
			sql = sql[:call.Start] + schema + "." + call.Function + sql[call.End:]
		}
	}
	return sql
}

// definitions are the statements that make those functions.
func (p *Personality) definitions() []string {
	if len(p.Instead) == 0 {
		return nil
	}
	made := []string{"create schema if not exists " + schema}
	for name, forms := range p.Instead {
		for _, form := range forms {
			made = append(made, "create or replace function "+schema+"."+name+form)
		}
	}
	return made
}
