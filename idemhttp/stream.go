package idemhttp

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"time"
)

// What http.ResponseController asks a writer for, and what is not to be had before the commit. The recorder has these
// methods to say why. It has no Unwrap, by which a handler would get at the connection, and no Flush, which cannot fail.

var errBuffered = fmt.Errorf("idemhttp: the answer is sent after the commit, so this is %w", http.ErrNotSupported)

// FlushError refuses.
func (r *recorder) FlushError() error { return errBuffered }

// Hijack refuses.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errBuffered }

// SetReadDeadline refuses. The request has been read.
func (r *recorder) SetReadDeadline(time.Time) error { return errBuffered }

// SetWriteDeadline refuses.
func (r *recorder) SetWriteDeadline(time.Time) error { return errBuffered }

// EnableFullDuplex refuses.
func (r *recorder) EnableFullDuplex() error { return errBuffered }
