package personality

// All lists every personality.
var All = []*Personality{CockroachDB, OldCockroachDB, Yugabyte, AuroraDSQL, Multigres, PgDog}

// CockroachDB imitates version 26.2. Its transaction-level advisory locks are real. Its
// session-level advisory locks are always granted and lock nothing.
var CockroachDB = &Personality{
	Name: "CockroachDB",
	Sources: []string{
		"https://github.com/cockroachdb/cockroach/pull/168353 (locks of a transaction)",
		"https://github.com/cockroachdb/cockroach/issues/169981 (locks of a session are not implemented)",
		"https://github.com/cockroachdb/cockroach/issues/36664 (functions such as timestamptz_send are not implemented)",
		"https://github.com/cockroachdb/cockroach/issues/41522 (LISTEN and NOTIFY are not supported)",
		"https://github.com/cockroachdb/cockroach/issues/12970 (pg_backend_pid is a constant, as it is for a pooler)",
		"https://www.cockroachlabs.com/docs/stable/transactions (SERIALIZABLE by default)",
		"https://github.com/cockroachdb/cockroach/pull/37791 (40003, statement completion unknown)",
	},
	Isolation: "serializable",
	Functions: map[string]Refusal{
		"timestamptz_send": {"42883", "unknown function: pg_catalog.timestamptz_send()"},
	},
	Commands: map[string]Refusal{"listen": {"0A000", "LISTEN is not supported"}, "notify": {"0A000", "NOTIFY is not supported"}},
	Instead:  merge(grantedForSessions, version("CockroachDB CCL v26.2.1 (x86_64-pc-linux-gnu, built 2026/08/03 12:00:00, go1.26)")),
}

// OldCockroachDB imitates versions up to 26.1, in which no advisory lock locks anything.
var OldCockroachDB = &Personality{
	Name: "CockroachDB up to 26.1",
	Sources: append([]string{
		"https://github.com/blagerweij/liquibase-sessionlock/issues/32 (the functions return true and do nothing)",
	}, CockroachDB.Sources[1:]...),
	Isolation: CockroachDB.Isolation,
	Functions: CockroachDB.Functions,
	Commands:  CockroachDB.Commands,
	Instead: merge(grantedForSessions, grantedForTransactions,
		version("CockroachDB CCL v25.4.2 (x86_64-pc-linux-gnu, built 2026/01/12 12:00:00, go1.25)")),
}

// Yugabyte imitates YugabyteDB 2025.1 and later with its default settings.
var Yugabyte = &Personality{
	Name: "YugabyteDB",
	Sources: []string{
		"https://docs.yugabyte.com/stable/explore/transactions/explicit-locking/ (advisory locks)",
		"https://docs.yugabyte.com/stable/api/ysql/the-sql-language/statements/cmd_listen_notify/ (LISTEN exists since 2025.2.3 and is off by default)",
	},
	Isolation: "repeatable read",
	Commands:  map[string]Refusal{"listen": {"0A000", "LISTEN not supported yet"}},
	Instead:   version("PostgreSQL 15.12-YB-2025.1.2.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit"),
}

// AuroraDSQL imitates Amazon Aurora DSQL.
var AuroraDSQL = &Personality{
	Name: "Aurora DSQL",
	Sources: []string{
		"https://docs.aws.amazon.com/aurora-dsql/latest/userguide/working-with-postgresql-compatibility-unsupported-features.html",
		"https://docs.aws.amazon.com/aurora-dsql/latest/userguide/working-with-concurrency-control.html (40001 at COMMIT)",
		"https://github.com/pressly/goose/pull/971 (function pg_try_advisory_lock not supported, 0A000)",
		"https://github.com/ariga/atlas/issues/3539 (the same)",
	},
	Isolation: "repeatable read",
	Functions: notSupported("0A000", advisory...),
	Commands: map[string]Refusal{
		"savepoint": {"0A000", "unsupported statement: Savepoint"}, "rollback to": {"0A000", "unsupported statement: RollbackTo"},
		"release": {"0A000", "unsupported statement: Release"}, "truncate": {"0A000", "unsupported statement: Truncate"},
		"do": {"0A000", "unsupported statement: Do"}, "create trigger": {"0A000", "unsupported statement: CreateTrigger"},
	},
	Instead: version("PostgreSQL 16.9 on aarch64-unknown-linux-gnu, compiled by gcc, 64-bit (Aurora DSQL)"),
}

// Multigres imitates the gateway of Multigres, which Supabase develops.
var Multigres = &Personality{
	Name: "Multigres",
	Sources: []string{
		"https://github.com/multigres/multigres/pull/1088 (set_config of synchronous_commit, 0A000)",
		"https://github.com/multigres/multigres/pull/1121 (locks of a session pin its connection)",
	},
	Sets: map[string]Refusal{
		"synchronous_commit": {"0A000", `setting "synchronous_commit" is managed by the cluster and cannot be changed`},
	},
	Commands: map[string]Refusal{
		"set synchronous_commit":       {"0A000", `setting "synchronous_commit" is managed by the cluster and cannot be changed`},
		"set local synchronous_commit": {"0A000", `setting "synchronous_commit" is managed by the cluster and cannot be changed`},
	},
}

// PgDog imitates PgDog in transaction mode in front of one database. It refuses nothing that idem
// uses. Put its proxy in front of a PgBouncer, which shares sessions among clients as PgDog does.
var PgDog = &Personality{
	Name:    "PgDog",
	Sources: []string{"https://docs.pgdog.dev/features/transaction-mode"},
}

var (
	ofSessions = []string{
		"pg_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock", "pg_try_advisory_lock_shared",
		"pg_advisory_unlock", "pg_advisory_unlock_shared", "pg_advisory_unlock_all",
	}
	ofTransactions = []string{"pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared"}
	advisory       = append(append([]string{}, ofSessions...), ofTransactions...)

	grantedForSessions     = granted(ofSessions)
	grantedForTransactions = granted(ofTransactions)
)

// granted returns definitions of lock functions that always return true and lock nothing.
func granted(names []string) map[string][]string {
	made := map[string][]string{}
	for _, name := range names {
		const body = " returns boolean language sql volatile as 'select true'"
		made[name] = []string{"(bigint)" + body, "(integer, integer)" + body, "()" + body}
	}
	return made
}

func version(text string) map[string][]string {
	return map[string][]string{"version": {"() returns text language sql stable as $$select '" + text + "'$$"}}
}

func notSupported(code string, names ...string) map[string]Refusal {
	made := map[string]Refusal{}
	for _, name := range names {
		made[name] = Refusal{code, "function " + name + " not supported"}
	}
	return made
}

func merge(maps ...map[string][]string) map[string][]string {
	all := map[string][]string{}
	for _, m := range maps {
		for name, forms := range m {
			all[name] = forms
		}
	}
	return all
}
