package command

import (
	"strings"

	"github.com/alecthomas/kong"
)

// detail is the help of a command besides its flags: a description and an example.
type detail struct{ about, example string }

// details has the detailed help of each command, by the words of the command, such as "dead list".
var details = map[string]detail{
	"doctor": {`Only reads. Connect as a member of pg_monitor, to see the sessions of other roles, and give the role of the program with --role. The exit
code is 3 if there is a warning or a problem, and otherwise 6 if a check was not possible; notes do not count. A table above 64 MB is scanned for
records that were left behind only with --scan: without it, that check counts as not possible.`,
		"idem doctor -U postgres --role app"},
	"verify": {`Use it on a restored database, or on one that will take over, before the first process uses it. It only reads, and scans the tables. It finds
what is incomplete, and with --against what differs from another database. docs/operate.md has the steps around it. It does not know whether the
effects in tables of your own are complete. The exit code is 3 if there is a warning or a problem, and otherwise 6 if a check was not possible;
notes do not count.`,
		"idem verify -d postgres://new/shop --against postgres://old/shop"},
	"stats": {`Reads no record: the figures come from the catalog, the statistics and the locks, so that the size of the table does not matter. An estimate says
what it is based on. --exact counts by reading the whole table in one statement, until --timeout.`,
		"idem stats --exact --timeout 5m"},
	"watch": {`Prints the figures of stats repeatedly, until Ctrl-C. A terminal is cleared before each reading. With --json it writes one line for
each reading.`,
		"idem watch --every 5s"},
	"ui": {`Serves a web page until Ctrl-C: figures, operations with their steps, the outbox by topic, dead letters, keys in flight, the audit log,
charts of the last hour, and the findings of the doctor. It only reads. With --write, a person who enters the token may retry, resolve and cancel
operations, and redrive and drop dead letters, each with a reason. The token is that of the variable IDEM_UI_TOKEN, or a new one, which is printed.
The connection is not encrypted: from another machine, use ssh -L.`,
		"idem ui --write"},
	"stuck": {`Lists what needs a person: transactions that hold keys for long, operations that are parked, operations that are due and that no process
executes, and records that an fn left behind because it ended its own transaction. A sealed error of an operation needs the keys. No index leads to
records that were left behind: a table above 64 MB is scanned only with --scan. The exit code is 3 if something was found, and otherwise 6 if the
table was not scanned.`,
		"idem stuck --older 5m --scan"},
	"show": {`Shows one record by its primary key, expired or not. The response is read only with --reveal.`,
		"idem show 'tenant-1/POST %2Forders' 7f3c9a52-0d1e --reveal"},
	"list": {`Lists records in the order of the primary key. --scope is a range of the index. The other filters check each record, so without --scope they
may scan the whole table, until --limit or --timeout. Only a list with --full prints the mark for --after, because the mark has a whole key.`,
		"idem list --scope tenant-1/ --state failed --older 1h"},
	"explain": {`Says what a call with this scope and key would get at this moment, and writes nothing. With --request it also compares the hash of a request with
that of the record: by HashJSON and HashBytes, and with --method and --target by idemhttp.`,
		"idem explain 'tenant-1/POST %2Forders' 7f3c9a52-0d1e --request order.json --without /client_time"},
	"audit": {`Every change that a person makes to a record, an operation, a dead letter or a relay, by this command or by a program, is stored in the
transaction of the change. A refused change is not listed. BY is the named person and the database role. The latest come first. A purge deletes them
after a year.`,
		"idem audit --since 7d --act cancel"},
	"operation": {`Operations have several steps: see package operation. A parked operation waits for a person. show says why it is parked.`,
		"idem operation list --state parked"},
	"operation list": {`Lists operations, the latest first. No index has that order, so the list scans the whole table, until --timeout: purge keeps it small. The last
error of an operation is shown if there was one since its last progress. A sealed error needs the keys.`,
		"idem operation list --name checkout --state parked"},
	"operation show": {`Shows one operation: its state, why it is parked, its last error, and its recorded steps. A step is recorded with the next commit. TOOK is the
time since the entry before it. A sealed error is shown as "sealed" without the keys. Values are read only with --reveal.`,
		"idem operation show 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --reveal"},
	"operation history": {`Writes the history of one operation to standard output: its input and its steps, with their values in clear. As a file in testdata/ it is the
input of idemtest.Replay, which tests the code of the next release against it. Read it before you share it.`,
		"idem operation history 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"},
	"operation retry": {`Use it after you repaired the cause: the code is fixed, or the other side is available again. A Worker, or a call with the key, then resumes
the operation. A Keyed call in doubt is made again under its key. An operation whose Once call is in doubt parks again: see resolve.`,
		"idem operation retry --all --name checkout --step charge --dry-run"},
	"operation resolve": {`Records the outcome of a call in doubt of a parked operation. Ask the other side first, by the key of the call: idem operation show prints it.
The operation trusts the outcome. --reason is required and says how it is known. With --not-happened the call will not be made, and the function
gets an error. retry makes the call again instead, unless its policy is Once. An undo that did not happen is made again in both cases. If the
operation is sealed, a value or an error is sealed too, which needs the keys.`,
		`idem operation resolve 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --happened --value '{"charge":"ch_1"}' --reason 'INC-7: the bank has it' --yes`},
	"operation cancel": {`Ends an operation that is running or parked. It begins no further step, and its steps are undone by a Worker, or by a call with the key.
After that the key is free. Before it asks, the command prints what will happen: which call is in doubt and what Cancel does about it, which steps
are undone, and which steps stay because they have no undo. If the policy of a call in doubt is Asked, Cancel asks the other side. If it is Keyed and
the step has an undo, the call is made again under its key, and then undone. Otherwise the operation parks, and resolve records the outcome.
Canceling an operation again changes nothing.`,
		"idem operation cancel 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --yes"},
	"outbox": {`Messages of package outbox that no relay has published yet. A message that could not be published blocks later messages of its topic and key,
until it is published or dead-lettered: see idem dead.`,
		"idem outbox list --state held"},
	"outbox stats": {`Counts up to 10,000 messages of each kind, so that it takes little time with any backlog.`,
		"idem outbox stats --json"},
	"outbox list": {`Lists messages in the order in which they were added, without their contents. With --topic and --older it may scan the whole outbox, until
--timeout. With --state delayed the order is that in which messages become due, and there is no --after.`,
		"idem outbox list --state held --topic orders"},
	"outbox forget": {`For a relay that is no longer deployed. Its topics go to the relay without a name, or to one that has them in its RelayConfig.Topics. The
topics of a running relay are not released: stop it first. No message is lost.`,
		"idem outbox forget invoices"},
	"inbox": {`Messages that package inbox could not handle yet. A message that reaches the maximum number of attempts becomes a dead letter: see idem dead.`,
		"idem inbox list --consumer billing"},
	"inbox stats": {`Prints a line for each consumer that has failing messages or dead letters. Handled messages are not read.`,
		"idem inbox stats --json"},
	"inbox list": {`The log of the consumer has the error of a message: the database stores it only for a dead letter. NEXT TRY is the earliest time; a retry also
needs a delivery by the broker. "in progress" means that the outcome of the last attempt is not recorded: the attempt runs, or its process was
killed.`,
		"idem inbox list --consumer billing"},
	"dead": {`A dead letter is a message that could not be published (side outbox), or that a consumer could not handle (side inbox), within the maximum
number of attempts. It waits for a person: redrive it after you repaired the cause, or drop it.`,
		"idem dead list --side inbox --consumer billing"},
	"dead list": {`Lists dead letters in the order of side, consumer, source and id, without their contents. CLASS is the kind of the last error: the SQLSTATE of
an error of Postgres, or the type of another error. idem dead show has its text.`,
		"idem dead list --side outbox --topic orders"},
	"dead show": {`Shows one dead letter. Its contents are read only with --reveal. The reason is the text of the last error of the program.`,
		"idem dead show 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --side outbox --reveal"},
	"dead redrive": {`Use it after you repaired the cause. A dead letter of the outbox returns to the outbox under its id, as the last message of its key. If it is
sealed, this needs the keys. A dead letter of the inbox is handled by the program that consumes (inbox.RunRedrives), or when a broker delivers it
again. It stays listed until then.`,
		"idem dead redrive --all --side inbox --consumer billing --class 40001 --dry-run"},
	"dead drop": {`Deletes dead letters that nobody needs any more, with their contents. A dead letter that failed again since it was listed stays.`,
		"idem dead drop 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --side outbox --dry-run"},
	"evict": {`Deletes one record. Its effect stays, and the next call with the key executes again. So check first what the execution did.`,
		"idem evict tenant-1/payout 7f3c9a52-0d1e --execution 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"},
	"purge": {`Makes one sweep over the tables of idem, as package purge does: by ranges of blocks, with pauses, and with waits for lagging standbys and for
vacuum. Only one purge works at a time. The next purge continues where an interrupted one stopped. --timeout does not apply.`,
		"idem purge --max 10m --yes"},
	"partition": {`Creates a new table with partitions, and a trigger that writes to both tables. It copies the old rows in short transactions, compares the
tables, and replaces the old table by the new one. Calls continue meanwhile: they are somewhat slower, and at two moments they wait up to 0.2 s for
each try. It needs as much space again as the table has. An interrupted run leaves the new table and the trigger: run it again, or with --abort.
--timeout does not apply.`,
		"idem partition records --parts 16 --role idem_migrate"},
	"migrate": {`The migrations are those of package migrations. Their version table is public.idem_goose_version. Any number of processes may run them at
once, also through a pooler: one works, and the others wait.`,
		"idem migrate up --yes"},
	"migrate up":     {example: "idem migrate up --yes -d app --role idem_migrate"},
	"migrate down":   {example: "idem migrate down -d scratch"},
	"migrate status": {example: "idem migrate status --json"},
	"help": {`topics explains the terms that the commands use, such as parked and in doubt. docs/glossary.md has all terms.`,
		"idem help topics"},
	"completion": {`The script asks idem for completions. To load it in every shell, add the example to ~/.bashrc, or with zsh to ~/.zshrc. For fish:
idem completion fish > ~/.config/fish/completions/idem.fish`,
		"source <(idem completion bash)"},
	"version": {example: "idem version --json"},
}

// addDetails sets the detailed help in the model of the parser.
func addDetails(k *kong.Kong) error {
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if command, ok := node.(*kong.Node); ok {
			if d, known := details[command.Path()]; known {
				command.Detail = strings.TrimSpace(d.about + "\n\nExample: " + d.example)
			}
		}
		return next(nil)
	})
}
