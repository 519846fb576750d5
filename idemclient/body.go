package idemclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

// body gives every attempt the same bytes.
type body struct {
	first    io.ReadCloser
	again    func() (io.ReadCloser, error) // nil: it can be sent once
	declared int64                         // what the request says of its length; 0 or -1 if it does not
}

// bodyOf finds out how the body of a request can be sent more than once. One without GetBody is read into memory, up to
// limit bytes; the end of the request's context ends that too, by closing the body.
func bodyOf(req *http.Request, limit int64) (body, error) {
	b := body{first: req.Body, again: req.GetBody, declared: req.ContentLength}
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		b.again = func() (io.ReadCloser, error) { return req.Body, nil }
		return b, nil
	case req.GetBody != nil, limit < 0, req.ContentLength > limit:
		return b, nil
	}
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	defer stop()
	head, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	switch {
	case err != nil:
		return body{}, err
	case int64(len(head)) > limit:
		b.first = joined{io.MultiReader(bytes.NewReader(head), req.Body), req.Body}
		return b, nil
	}
	req.Body.Close()
	b.again = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(head)), nil }
	b.first, err = b.again()
	return b, err
}

// sound reports whether the body can be read again and is as long as it was said to be. If it is not, an attempt that failed
// may have failed because of that, and so will the next.
func (b body) sound() bool {
	again, err := b.again()
	if err != nil || again == nil {
		return err == nil
	}
	defer again.Close()
	n, err := io.Copy(io.Discard, again)
	return err == nil && (b.declared <= 0 || b.declared == n)
}

// joined reads from one thing and closes another.
type joined struct {
	io.Reader
	io.Closer
}
