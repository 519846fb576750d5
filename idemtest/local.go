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

// localScript is a shell script that runs a Postgres server until the standard input of the script
// ends. That input is a pipe from the test process. The operating system closes the pipe when the
// test process ends, even after a crash or SIGKILL. The script then stops the server and deletes
// its data. It ignores signals from the terminal, so that it can clean up after Ctrl-C.
//
// The first line of the script's output is "started" or an error text.
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

// programDirs are patterns of the directories in which packages install PostgreSQL's programs. Most
// of these directories are not in PATH.
var programDirs = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin", "/usr/local/pgsql/bin",
}

// startLocal starts a server with PostgreSQL's programs and returns its connection string. It fails
// if the programs are not installed, or if initdb fails.
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

// programs returns the first directory that contains both postgres and initdb. It searches PATH
// first, and then programDirs. If several directories match a pattern of programDirs, it tries them
// in reverse order, usually the newest version first.
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

// unprivileged prepares cmd to run the server as a user other than root. This default always fails.
// On Unix, an init function replaces it with asOtherUser.
var unprivileged = func(*exec.Cmd) error { return errors.New("PostgreSQL's programs are started on Unix only") }

// freePort returns a TCP port that is free at the moment. Another process could take the port
// before the server listens on it.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// lifelines contains the standard inputs of the started scripts. They stay open until this process
// ends. Each script ends when its standard input is closed.
var lifelines []io.Closer

// startScript starts cmd and returns the first line of its output. The script runs until its
// standard input ends, which is when this process ends.
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
