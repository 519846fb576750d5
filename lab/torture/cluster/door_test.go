package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that answers each connection with its name and then echoes the input.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); fmt.Fprintln(conn, name); io.Copy(conn, conn) }()
		}
	}()
	return l.Addr().String()
}

func enter(t *testing.T, d *door) (net.Conn, string) {
	t.Helper()
	conn, err := net.Dial("tcp", d.address())
	if errors.Is(err, syscall.ECONNRESET) { // a door that is closed may be quicker than the greeting
		return nil, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	name, _ := bufio.NewReaderSize(conn, 16).ReadString('\n')
	return conn, name
}

func TestDoorLeadsToOneServerAtATime(t *testing.T) {
	t.Parallel()
	d, err := openDoor(echo(t, "first"))
	if err != nil {
		t.Fatal(err)
	}
	inside, name := enter(t, d)
	if name != "first\n" {
		t.Errorf("led to %q", name)
	}
	d.lead("")
	if _, err := inside.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the turn of the door")
	}
	if _, name := enter(t, d); name != "" {
		t.Errorf("a closed door led to %q", name)
	}
	d.lead(echo(t, "second"))
	inside, name = enter(t, d)
	if name != "second\n" {
		t.Errorf("led to %q", name)
	}
	inside.(*net.TCPConn).CloseWrite()
	if _, err := io.ReadAll(inside); err != nil {
		t.Errorf("the end of the stream was not passed on: %v", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}
