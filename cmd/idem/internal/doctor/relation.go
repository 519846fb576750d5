package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// relation is a table of idem, or a partition of one, as the catalog describes it. Queries identify
// it by OID, because a role without USAGE on the schema cannot resolve its name.
type relation struct {
	OID         uint32
	Table       string // name of the table without schema; for a partition, of the table that it belongs to
	Name        string // name of the relation itself, as schema.table
	Kind        string // pg_class.relkind
	Root        bool   // not a partition
	Leaf        bool   // stores rows itself
	Logged      bool
	RowSecurity bool   // row-level security is on
	Applies     bool   // row-level security, if it is on, applies to the examined role
	Identity    string // pg_class.relreplident
	Autovacuum  bool   // not disabled for the table or for its TOAST table
	Used        bool   // has pages, or has had inserts according to the statistics
	Readable    bool   // the connected role has SELECT on it
}

// findRelations returns the relations of idem, in the order of the variable tables. It reads only
// catalogs and takes no lock on the relations, so a session that has locked a table does not block
// it.
func findRelations(ctx context.Context, tx pgx.Tx, role string) ([]relation, error) {
	// CollectRows returns the error of Query.
	rows, _ := tx.Query(ctx, `
		WITH RECURSIVE roots AS (
			SELECT c.oid, c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'idem' AND c.relname = ANY ($1) AND c.relkind NOT IN ('i', 'I', 'S')
		), relations AS (
			SELECT oid, name, true AS root FROM roots
			UNION ALL
			SELECT i.inhrelid, r.name, false FROM relations r JOIN pg_inherits i ON i.inhparent = r.oid
		)
		SELECT c.oid, r.name, format('%I.%I', n.nspname, c.relname), c.relkind::text, r.root, c.relkind NOT IN ('p', 'v'), c.relpersistence = 'p',
			c.relrowsecurity, NOT coalesce((SELECT rolsuper OR rolbypassrls OR (pg_has_role(p.oid, c.relowner, 'usage') AND NOT c.relforcerowsecurity)
				FROM pg_roles p WHERE p.rolname = $2), false),
			c.relreplident::text,
			NOT EXISTS (SELECT FROM pg_class h, pg_options_to_table(h.reloptions) o
				WHERE h.oid IN (c.oid, c.reltoastrelid) AND o.option_name = 'autovacuum_enabled' AND NOT o.option_value::bool),
			c.relpages > 0 OR coalesce(pg_stat_get_tuples_inserted(c.oid), 0) > 0, has_table_privilege(c.oid, 'SELECT')
		FROM relations r JOIN pg_class c ON c.oid = r.oid JOIN pg_namespace n ON n.oid = c.relnamespace
		ORDER BY array_position($1, r.name), NOT r.root, c.relname`, tableNames(func(*expected) bool { return true }), role)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
}

// leaves returns the relations that store the rows of the given tables, or of all tables if none is
// given.
func (p *target) leaves(of ...string) (found []relation) {
	for _, r := range p.relations {
		if r.Leaf && (len(of) == 0 || slices.Contains(of, r.Table)) {
			found = append(found, r)
		}
	}
	return found
}

// bytes returns the total size of the main forks of relations. pg_relation_size locks each
// relation, so bytes waits for a session that holds an ACCESS EXCLUSIVE lock.
func (e *exam) bytes(of ...relation) (sum int64) {
	e.one("SELECT coalesce(sum(pg_relation_size(oid)), 0)::int8 FROM unnest($1::oid[]) oid", []any{oidsOf(of)}, &sum)
	return sum
}

// root returns the relation of the table itself, and not of one of its partitions. It returns nil
// if the table does not exist.
func (p *target) root(table string) *relation {
	for i := range p.relations {
		if r := &p.relations[i]; r.Root && r.Table == table {
			return r
		}
	}
	return nil
}

// relation returns the relation with this OID. If there is none, it returns a placeholder whose
// name contains the OID, for use in a finding.
func (p *target) relation(oid uint32) *relation {
	for i := range p.relations {
		if p.relations[i].OID == oid {
			return &p.relations[i]
		}
	}
	return &relation{Name: fmt.Sprintf("the relation %d", oid)}
}

// oids returns the OIDs of all relations of idem, in the order in which findings are reported.
func (p *target) oids() []uint32 { return oidsOf(p.relations) }

// oidsOf returns the OIDs of relations, in their order.
func oidsOf(relations []relation) (all []uint32) {
	for _, r := range relations {
		all = append(all, r.OID)
	}
	return all
}

// expectation returns the table definition that r should match.
func (r *relation) expectation() *expected {
	for i := range tables {
		if tables[i].name == r.Table {
			return &tables[i]
		}
	}
	return &expected{name: r.Table}
}

// expected describes a table as the migrations create it. The definitions repeat what the
// migrations create, because a migration only says how to change a table, and not how the table
// looks after all migrations.
type expected struct {
	name    string
	key     string   // the columns of the primary key
	columns string   // each column with its type
	indexes []string // the name and definition of each index besides the primary key
	// The column with the time from which purge may delete a row. It is empty if purge does not
	// sweep the table.
	purged     string
	purgedWhen string // what happened to a row before purge may delete it
	// The columns that go into a checksum of the rows, or "" for none. The checksum does not depend
	// on the order of rows. Columns of time are left out, because their text depends on settings of
	// the session.
	checksum string
	// The consequence if the primary key is missing, or if a crash has emptied the table.
	consequence string
}

// tables are all tables of schema idem. A test, TestDoctor_KnowsEveryTable, compares
// them with the migrations.
var tables = []expected{
	{
		name: "records", key: "scope, key", purged: "expires_at", purgedWhen: "expired", checksum: "scope, key, execution_id, state, status",
		columns: "scope text, key text, hash bytea, execution_id uuid, created_at timestamp with time zone, expires_at timestamp with time zone, " +
			"state text, status integer, completed_at timestamp with time zone, header jsonb, body bytea, sealed_by text",
		consequence: "a retry executes again",
	},
	{
		name: "sweeps", key: "name",
		columns: "name text, part text, block bigint, sweeper uuid, seen_at timestamp with time zone, waiting_for text, started_at timestamp with time zone, " +
			"progressed_at timestamp with time zone, total_pages bigint, pages bigint, deleted bigint, kept bigint, skipped bigint, " +
			"last_started_at timestamp with time zone, last_finished_at timestamp with time zone, last_pages bigint, last_deleted bigint, " +
			"last_kept bigint, last_skipped bigint, deleted_total bigint",
		consequence: "a purge begins again, or fails",
	},
	{
		name: "operations", key: "id", purged: "ended_at", purgedWhen: "ended", checksum: "id, state, epoch, seq, kind, step",
		columns: "id uuid, scope text, key text, hash bytea, name text, ttl bigint, created_at timestamp with time zone, input bytea, parent uuid, epoch integer, " +
			"owner integer, state text, undoing boolean, canceled boolean, kind text, step text, policy text, undos integer, seq integer, since timestamp with time zone, " +
			"wake_at timestamp with time zone, tries integer, attempts integer, deaths integer, taken_at timestamp with time zone, " +
			"ended_at timestamp with time zone, without_calling boolean, without_code boolean, " +
			"reason text, reason_step text, reason_text text, error_step text, error_attempt integer, error_text bytea, " +
			"error_at timestamp with time zone, error_next_at timestamp with time zone",
		indexes:     []string{"operations_due btree (wake_at) WHERE (state = 'running'::text)", "operations_parked btree (since) WHERE (state = 'parked'::text)"},
		consequence: "an operation stops half done, or runs twice",
	},
	{
		name: "steps", key: "operation_id, seq", checksum: "operation_id, seq, kind, outcome",
		columns: "operation_id uuid, seq integer, kind text, name text, due_at timestamp with time zone, recorded_at timestamp with time zone, outcome text, value bytea, " +
			"undos integer, policy text",
		consequence: "an operation repeats steps that have happened",
	},
	{
		name: "signals", key: "operation_id, name", checksum: "operation_id, name, taken",
		columns:     "operation_id uuid, name text, sent_at timestamp with time zone, value bytea, taken boolean",
		indexes:     []string{"signals_waiting btree (operation_id) WHERE (NOT taken)"},
		consequence: "an operation waits for a signal that was sent",
	},
	{
		name: "leases", key: "instance", columns: "instance integer, expires_at timestamp with time zone",
		consequence: "processes behind a pooler claim each other's work",
	},
	{
		name: "outbox", key: "held, seq", checksum: "seq, id, held",
		columns: "seq bigint, created_at timestamp with time zone, id uuid, held boolean, attempts integer, next_at timestamp with time zone, " +
			"aggregatetype text, aggregateid text, type text, payload bytea, headers jsonb, tracingspancontext text, class text, reason text",
		indexes:     []string{"outbox_held btree (aggregatetype, aggregateid, seq) WHERE held"},
		consequence: "messages are lost, or leave out of order",
	},
	{
		name: "delayed", key: "not_before, seq", checksum: "seq, id",
		columns: "seq bigint, not_before timestamp with time zone, created_at timestamp with time zone, id uuid, aggregatetype text, aggregateid text, type text, " +
			"payload bytea, headers jsonb, tracingspancontext text",
		consequence: "delayed messages are lost, or leave out of order",
	},
	{
		name: "published", key: "id", purged: "expires_at", purgedWhen: "expired",
		columns: "id uuid, seq bigint, created_at timestamp with time zone, published_at timestamp with time zone, expires_at timestamp with time zone, " +
			"aggregatetype text, aggregateid text, type text, payload bytea, headers jsonb",
		consequence: "the record of published messages is lost",
	},
	{
		name: "relays", key: "relay, lane", columns: "relay text, lane integer, instance integer, since timestamp with time zone, generation bigint",
		consequence: "two relays publish one lane, and its order is lost",
	},
	{
		name: "relay_topics", key: "relay", checksum: "relay, topics",
		columns:     "relay text, topics text[], generation bigint, since timestamp with time zone",
		consequence: "relays publish each other's messages, or none do",
	},
	{
		name: "inbox", key: "consumer, source, id", purged: "expires_at", purgedWhen: "expired", checksum: "consumer, source, id, state",
		columns: "consumer text, source text, id text, hash bytea, state text, since timestamp with time zone, expires_at timestamp with time zone, " +
			"attempts integer, begun boolean, hindered integer, retry_at timestamp with time zone, key text",
		indexes:     []string{"inbox_failing btree (consumer, source, key) WHERE (state = 'failing'::text)"},
		consequence: "a message that is delivered again is handled again",
	},
	{
		name: "dead_letters", key: "side, consumer, source, id", checksum: "side, consumer, source, id, redrive_at IS NULL",
		columns: "side text, consumer text, source text, id text, key text, type text, payload bytea, headers jsonb, sealed_by text, class text, " +
			"reason text, attempts integer, created_at timestamp with time zone, died_at timestamp with time zone, redrive_at timestamp with time zone",
		consequence: "messages that wait for a person are lost",
	},
	{
		name: "audit", key: "at, id", purged: "at", purgedWhen: "were written", checksum: "id, act, outcome",
		columns: "at timestamp with time zone, id uuid, act text, outcome text, role text, person text, reason text, operation_id uuid, step text, " +
			"scope text, key text, side text, consumer text, source text, message_id text",
		consequence: "the record of what people did is lost",
	},
}

// sequences maps each sequence of schema idem to the table with its column. The sequence named
// instances belongs to no table.
var sequences = map[string]string{"instances": "", "outbox_seq_seq": "outbox", "delayed_seq_seq": "delayed"}

// tableNames returns the names of the tables for which the given function returns true.
func tableNames(of func(*expected) bool) (found []string) {
	for i := range tables {
		if of(&tables[i]) {
			found = append(found, tables[i].name)
		}
	}
	return found
}

// index splits an element of expected.indexes into the name and the definition of the index.
func index(of string) (name, definition string) {
	name, definition, _ = strings.Cut(of, " ")
	return name, definition
}
