package personality

import (
	"slices"
	"strings"

	"github.com/idem-go/idem/lab/pgproxy"
)

// Personality describes how a server or pooler differs from PostgreSQL.
type Personality struct {
	Name    string
	Sources []string // where the differences are documented

	Settings  string             // the server's own session defaults: -c name=value
	Functions map[string]Refusal // refused functions by name, without a schema
	Sets      map[string]Refusal // settings that set_config may not change, local or not
	Commands  map[string]Refusal // refused statements by their first words
	Startup   map[string]Refusal // startup parameters that a client may not send

	// Instead maps the name of a function to its replacements, one for each signature. A
	// replacement is the text that follows CREATE FUNCTION, the schema and the name.
	Instead map[string][]string
}

// Refusal is the error response to a refused statement.
type Refusal struct{ Code, Message string }

func (p *Personality) String() string { return p.Name }

// refusal returns the error response to a statement, or nil if the statement is not refused.
func (p *Personality) refusal(statement string) *Refusal {
	// The trailing spaces make sure that only whole words match.
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

// schema is the schema of the functions in Instead.
const schema = "personality"

// instead returns sql with its calls of replaced functions changed to their replacements. It edits
// from the end of the text, so that the positions in front stay valid.
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

// definitions returns the statements that create the functions in Instead.
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
