package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// disk is a small ext4 file system on a loop device. It can be filled, and it can lose everything
// that was not synced. dir contains the image of the device and the mount point.
type disk struct {
	dir   string
	guard *child.Guard // unmounts the disk and removes dir
}

// newDisk creates and mounts a disk of the given size. A guard process removes the disk when this
// process ends, even if this process is killed.
func newDisk(mebibytes int64) (_ *disk, err error) {
	dir, err := os.MkdirTemp("", "idem-disk-")
	if err != nil {
		return nil, err
	}
	d := &disk{dir: dir}
	const script = `umount "$1" 2>/dev/null || umount -l "$1" 2>/dev/null; rm -rf --one-file-system "$0"`
	if d.guard, err = child.NewGuard(script, dir, d.root()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	// The server may run as another user, which must be able to enter the directories.
	err = errors.Join(os.Chmod(dir, 0o711), os.Mkdir(d.root(), 0o755),
		os.WriteFile(d.image(), nil, 0o600), os.Truncate(d.image(), mebibytes<<20))
	if err != nil {
		return nil, err
	}
	// No blocks are reserved for root (-m 0), so that the disk is full for every user at the same
	// time.
	if err := program("mkfs.ext4", "-q", "-F", "-m", "0", d.image()); err != nil {
		return nil, err
	}
	return d, d.mount()
}

func (d *disk) image() string { return filepath.Join(d.dir, "image") }

// root returns the mount point.
func (d *disk) root() string { return filepath.Join(d.dir, "root") }

// folder creates a directory on the disk. If this process is root, the directory belongs to the
// unprivileged user that runs the server.
func (d *disk) folder(name string) (string, error) {
	path := filepath.Join(d.root(), name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", err
	}
	user, err := pgserver.Unprivileged(os.Getuid())
	if err != nil || user == nil {
		return path, err
	}
	return path, os.Chown(path, int(user.Uid), int(user.Gid))
}

// mount mounts the image with -o loop. The kernel then frees the loop device at the umount.
func (d *disk) mount() error { return program("mount", "-o", "loop", d.image(), d.root()) }

func (d *disk) unmount() error { return program("umount", d.root()) }

// close unmounts the disk and removes its directory. It fails if anything of the directory is left.
func (d *disk) close() error {
	if err := d.guard.Run(); err != nil {
		return err
	}
	if _, err := os.Stat(d.dir); err == nil {
		return fmt.Errorf("%s was left behind", d.dir)
	}
	return nil
}

// sync writes everything to the image, so that it survives powerOff.
func (d *disk) sync() error {
	root, err := os.Open(d.root())
	if err != nil {
		return err
	}
	defer root.Close()
	return syncFS(root)
}

// powerOff makes every later access to the disk fail and discards what was not synced, including
// the journal of the file system. The disk works again after unmount and mount.
func (d *disk) powerOff() error {
	root, err := os.Open(d.root())
	if err != nil {
		return err
	}
	defer root.Close()
	return shutDownFS(root)
}

// fill takes every free block of the disk, by one file that grows until the disk is full. The
// blocks are allocated without writing them, because a disk may have hundreds of mebibytes.
func (d *disk) fill() error {
	file, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer file.Close()
	offset := int64(0)
	for _, size := range []int64{256 << 20, 16 << 20, 1 << 20, 64 << 10, 4 << 10} {
		for err = allocate(file, offset, size); err == nil; err = allocate(file, offset, size) {
			offset += size
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

func (d *disk) free() error { return os.Remove(d.filler()) }

func (d *disk) filler() string { return filepath.Join(d.root(), "filler") }

// diskPossible returns nil if this machine can make disks. To learn that, it makes a small one.
var diskPossible = sync.OnceValue(func() error {
	if _, err := optional.FindAll("mount", "umount", "mkfs.ext4"); err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return errors.New("a disk is mounted by root only")
	}
	d, err := newDisk(8)
	if err != nil {
		return fmt.Errorf("no disk can be made here: %w", err)
	}
	return d.close()
})

// program runs a program and waits for its end. The error contains the output of the program.
func program(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// fullDisk fills the disk, waits, and frees it. The server first answers with errors. When it
// cannot create the next WAL segment, it crashes, and it cannot recover until there is space.
func fullDisk(ctx context.Context, i *injection) error {
	err := i.disk.fill()
	i.strike()
	if err == nil {
		_ = hurry(ctx, i.Cluster) // the server may crash
		sleep(ctx, i.between(100*time.Millisecond, 2*time.Second))
	}
	return errors.Join(err, i.disk.free(), i.revive(ctx))
}

// hurry makes the server use up its existing WAL segments, so that it needs a new one at once and
// not minutes later. It returns an error if the server crashes.
func hurry(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, pointLimit)
	defer cancel()
	return c.Do(ctx, func(conn *pgx.Conn) error {
		for range 8 {
			if _, err := conn.Exec(ctx, "select pg_logical_emit_message(false, 'torture', ''), pg_switch_wal()"); err != nil {
				return err
			}
		}
		return nil
	})
}

// ErrNotRecovered reports that the server does not start after a power loss, because its data is
// corrupt. A server with fsync=off fails in this way.
var ErrNotRecovered = errors.New("the server has not recovered from the loss of power")

// losePower discards what was not synced, kills the server, remounts the disk, and starts the
// server. The file system replays its journal at the mount, and the server recovers from its log.
func losePower(ctx context.Context, i *injection) error {
	if err := i.disk.powerOff(); err != nil {
		return err
	}
	i.strike()
	i.Cluster.Primary().Kill()
	if err := errors.Join(i.disk.unmount(), i.disk.mount()); err != nil {
		return err
	}
	if err := i.revive(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecovered, err)
	}
	return nil
}

// failSync makes the next fdatasync of each process of the server fail with EIO, until one has
// failed. Later calls succeed, because the server must be able to recover.
func failSync(ctx context.Context, i *injection) error {
	dir, err := os.MkdirTemp("", "idem-strace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	err = i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
		log := filepath.Join(dir, "log")
		tracer, err := trace(i.Cluster.Primary(), log)
		if err != nil {
			return err
		}
		err = awaitInjected(ctx, tracer, log, i.Cluster)
		i.strike()
		_ = tracer.Signal(syscall.SIGTERM) // strace detaches from the processes
		<-tracer.Done()
		for err == nil && conn.Ping(ctx) == nil { // wait until the server has ended all sessions
			time.Sleep(time.Millisecond)
		}
		return err
	})
	return errors.Join(err, i.revive(ctx))
}

// trace attaches strace to all processes of the server, and to the processes that they fork.
func trace(server *pgserver.Server, log string) (*child.Process, error) {
	args := []string{"--follow-forks", "--output", log, "--trace=fdatasync", "--inject=fdatasync:error=EIO:when=1",
		"--attach=" + strconv.Itoa(server.PID())}
	for _, p := range server.Processes() {
		args = append(args, "--attach="+strconv.Itoa(p.PID))
	}
	cmd := exec.Command("strace", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return child.Start(cmd, syscall.SIGTERM)
}

// awaitInjected waits until an fdatasync has failed. It commits a message of its own every 50 ms,
// so that there is an fdatasync even if the workers are idle.
func awaitInjected(ctx context.Context, tracer *child.Process, log string, c *cluster.Cluster) error {
	for {
		select {
		case <-tracer.Done():
			return errors.New("strace has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if calls, _ := os.ReadFile(log); bytes.Contains(calls, []byte("(INJECTED)")) {
			return nil
		}
		_ = c.Exec(ctx, "select pg_logical_emit_message(true, 'torture', '')")
	}
}

// tracePossible returns nil if strace can inject faults into a running process. To learn that, it
// attaches strace to a process of its own.
var tracePossible = sync.OnceValue(func() error {
	if _, err := optional.Find("strace"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "idem-strace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	victim, err := child.Start(exec.Command("sleep", "60"), syscall.SIGKILL)
	if err != nil {
		return err
	}
	defer victim.Kill()
	log := filepath.Join(dir, "log")
	tracer, err := child.Start(exec.Command("strace", "--output", log, "--inject=fdatasync:error=EIO:when=1",
		"--attach="+strconv.Itoa(victim.PID())), syscall.SIGTERM)
	if err != nil {
		return err
	}
	for {
		select {
		case <-tracer.Done():
			return errors.New("strace may not trace here")
		case <-time.After(5 * time.Millisecond):
		}
		if traced(victim.PID()) {
			_ = tracer.Signal(syscall.SIGTERM)
			<-tracer.Done()
			return nil
		}
	}
})

// traced reports whether a process has a tracer.
func traced(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, tracer, found := bytes.Cut(status, []byte("TracerPid:\t"))
	return found && !bytes.HasPrefix(tracer, []byte("0\n"))
}
