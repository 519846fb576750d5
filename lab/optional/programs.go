package optional

// program describes where a program can be installed, and which Debian packages contain it.
type program struct {
	packages string
	// places are names to look up in PATH, and patterns of file names. They are tried in this
	// order, and the program's own name in PATH comes last.
	places    []string
	notInPath bool // PATH is not searched, because a file of this name there is something else, such as a script
}

var programs = map[string]program{
	"bash":            {packages: "bash"},
	"chromium":        {packages: "chromium", places: []string{"chromium", "chromium-browser", "google-chrome"}},
	"docker":          {packages: "docker.io"},
	"epmd":            {packages: "erlang-base"},
	"etcd":            {packages: "etcd-server"},
	"gcc":             {packages: "gcc libc6-dev"},
	"git":             {packages: "git"},
	"libfaketime":     {packages: "libfaketime", places: []string{"/usr/lib*/faketime/libfaketimeMT.so.1", "/usr/lib/*/faketime/libfaketimeMT.so.1"}, notInPath: true},
	"mkfs.ext4":       {packages: "e2fsprogs"},
	"mount":           {packages: "mount"},
	"patroni":         {packages: "patroni python3-etcd"},
	"perf":            {packages: "linux-perf"},
	"pg_waldump":      {packages: "postgresql"},
	"pgbouncer":       {packages: "pgbouncer", places: []string{"pgbouncer", "/usr/sbin/pgbouncer"}},
	"postgres":        {packages: "postgresql", places: postgresPlaces()},
	"prometheus":      {packages: "prometheus"},
	"promtool":        {packages: "prometheus"},
	"psql":            {packages: "postgresql-client"},
	"rabbitmq-server": {packages: "rabbitmq-server", places: []string{"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"}, notInPath: true},
	"redis-server":    {packages: "redis-server"},
	"strace":          {packages: "strace"},
	"umount":          {packages: "mount"},
	"valgrind":        {packages: "valgrind"},
}

// PostgresDirs are patterns of the directories in which packages install PostgreSQL's programs.
// Most of them are not in PATH.
var PostgresDirs = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu, Gentoo
	"/usr/pgsql-*/bin",                                   // PGDG's RPMs
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew
	"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

func postgresPlaces() []string {
	places := []string{"postgres"}
	for _, dir := range PostgresDirs {
		places = append(places, dir+"/postgres")
	}
	return places
}
