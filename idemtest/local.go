package idemtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// localScript runs a server until the standard input of the script ends. The operating system
// closes that pipe when the test process ends, also after a crash or SIGKILL. The script then stops
// the server and deletes its data. It ignores the signals of the terminal, so that it can clean up
// after Ctrl-C.
//
// The first line of output is "started" or an error text.
const localScript = `
trap '' INT TERM HUP
dir=$(mktemp -d "${TMPDIR:-/tmp}/idemtest.XXXXXX") || exit 1
cd "$dir"
if "$1/initdb" -D "$dir/data" -U idemtest -A trust -E UTF8 --no-locale --no-sync >"$dir/log" 2>&1; then
	"$1/postgres" -D "$dir/data" -p "$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=300 \
		-c shared_buffers=32MB >>"$dir/log" 2>&1 </dev/null &
	echo started
else
	tail -n 5 "$dir/log" | tr '\n' ' '; echo
fi
read -r end
if [ -n "$!" ]; then kill -QUIT $!; wait $!; fi
cd / && rm -rf "$dir"
`

// programDirs are the directories in which packages install PostgreSQL's programs. Most of them are
// not in PATH.
var programDirs = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin", "/usr/local/pgsql/bin",
}

// startLocal starts a server with PostgreSQL's programs and returns its connection string. It fails
// if they are not installed, or if initdb fails.
func startLocal() (address string, err error) {
	bin, err := programs()
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-c", localScript, "idemtest", bin, fmt.Sprint(port))
	if err := unprivileged(cmd); err != nil {
		return "", err
	}
	line, err := startScript(cmd)
	if err == nil && line != "started" {
		err = fmt.Errorf("initdb: %s", line)
	}
	return fmt.Sprintf("postgres://idemtest@127.0.0.1:%d/postgres?sslmode=disable", port), err
}

// programs returns the first directory that contains both postgres and initdb. PATH comes first,
// then programDirs. Within one pattern of programDirs, the last name comes first, usually the
// newest version.
func programs() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range programDirs {
		found, _ := filepath.Glob(pattern)
		slices.Reverse(found)
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		_, noServer := os.Stat(filepath.Join(dir, "postgres"))
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil && noServer == nil {
			return dir, nil
		}
	}
	return "", errors.New("PostgreSQL's programs are not installed")
}

// unprivileged prepares a command for a start of the server. Unix replaces it in init.
var unprivileged = func(*exec.Cmd) error { return errors.New("PostgreSQL's programs are started on Unix only") }

// freePort returns a TCP port that is free at the moment. Another process could take it before the
// server does.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// lifelines holds the standard inputs of the started scripts open until the process ends.
var lifelines []io.Closer

// startScript starts cmd and returns its first line of output. The script continues until its
// standard input ends, see lifelines.
func startScript(cmd *exec.Cmd) (line string, err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	lifelines = append(lifelines, in)
	line, err = bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}
