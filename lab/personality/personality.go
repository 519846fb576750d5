package personality

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/lab/pgproxy"
)

// Personality describes how a server or pooler differs from PostgreSQL.
type Personality struct {
	Name    string
	Sources []string // where the differences are documented

	Isolation string             // default isolation level of transactions; read committed if empty
	Functions map[string]Refusal // refusals of function calls, by the name of the function without its schema
	Sets      map[string]Refusal // refusals of set_config, local or not, by the name of the setting
	Commands  map[string]Refusal // refusals of statements, by their first words

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

// rewrite returns the text that the server gets instead of sql. It changes calls of replaced
// functions to calls of their replacements. If any statement is refused, it returns one statement
// that fails with the code of the refusal: it replaces all of sql, because the server would
// otherwise execute the statements before the refused one.
func (p *Personality) rewrite(sql string) (text string, refused bool) {
	for _, statement := range pgproxy.Split(sql) {
		if refusal := p.refusal(statement); refusal != nil {
			return refusal.statement(), true
		}
	}
	calls := pgproxy.Calls(sql)
	slices.Reverse(calls) // from the end, so that the positions of earlier calls stay valid
	for _, call := range calls {
		if _, ok := p.Instead[call.Function]; ok {
			sql = sql[:call.Start] + schema + "." + call.Function + sql[call.End:]
		}
	}
	return sql, false
}

// statement returns a statement that the parser of PostgreSQL refuses with the code of r, whatever
// the number of parameters that the client sends.
func (r *Refusal) statement() string {
	switch r.Code {
	case "0A000":
		return "create assertion refused check (true)"
	case "42883":
		return `select "` + strings.ReplaceAll(r.Message, `"`, "'") + `"()`
	}
	panic("personality: no statement fails with " + r.Code)
}

// definitions returns the statements that prepare a database: they create the functions in Instead,
// set the isolation level, and, if conflict is n, make every n-th transaction that writes a record
// fail in its COMMIT.
func (p *Personality) definitions(conflict int) []string {
	made := []string{"create schema if not exists " + schema}
	for name, forms := range p.Instead {
		for _, form := range forms {
			made = append(made, "create or replace function "+schema+"."+name+form)
		}
	}
	if p.Isolation != "" {
		made = append(made, fmt.Sprintf("do $$ begin execute format('alter database %%I set default_transaction_isolation = %%L', "+
			"current_database(), '%s'); end $$", p.Isolation))
	}
	if conflict > 0 {
		made = append(made, "create sequence "+schema+".commits",
			fmt.Sprintf(`create function %[1]s.fail() returns trigger language plpgsql as $$ begin
				if nextval('%[1]s.commits') %% %d = 0 then raise sqlstate '40001'; end if;
				return null;
			end $$`, schema, conflict),
			"create constraint trigger fail after insert on idem.records deferrable initially deferred for each row execute function "+schema+".fail()")
	}
	return made
}
