package fault

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"
)

func syncFS(dir *os.File) error { return exec.Command("sync", "--file-system", dir.Name()).Run() }

func allocate(file *os.File, offset, size int64) error {
	return os.NewSyscallError("fallocate", syscall.Fallocate(int(file.Fd()), 0, offset, size))
}

// shutDownFS makes an ext4 file system behave as if the power had failed. The ioctl
// EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH stops all I/O without flushing the journal.
func shutDownFS(dir *os.File) error {
	const (
		shutdown   = 0x8004587d // _IOR('X', 125, __u32)
		noLogFlush = 2
	)
	how := uint32(noLogFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdown, uintptr(unsafe.Pointer(&how)))
	if errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}
