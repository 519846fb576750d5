package optional

// program says where a program may be, and which Debian packages have it.
type program struct {
	packages string
	// places are names in PATH and patterns of files, which are tried in this order and before the name of the program in PATH.
	places    []string
	notInPath bool   // what is in PATH under this name is of no use
	variable  string // the variable of the environment that names a substitute
}

var programs = map[string]program{
	"bash":            {packages: "bash"},
	"chromium":        {packages: "chromium", places: []string{"chromium", "chromium-browser", "google-chrome"}},
	"docker":          {packages: "docker.io", places: []string{"docker", "/var/run/docker.sock"}, variable: "DOCKER_HOST"},
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
	"tmux":            {packages: "tmux"},
	"umount":          {packages: "mount"},
	"valgrind":        {packages: "valgrind"},
}

// PostgresDirs are the places where packages put PostgreSQL's programs, for the most part out of PATH.
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
