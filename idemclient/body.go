package idemclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

// body is the body of a request. Every attempt gets the same bytes from it.
type body struct {
	first    io.ReadCloser
	again    func() (io.ReadCloser, error) // opens the body again; nil if the body can be sent only once
	declared int64                         // the Content-Length; 0 or -1 if unknown
}

// bodyOf returns the body of a request in a form that can be sent more than once, if possible. A
// body without GetBody is read into memory, up to limit bytes. If the context of the request ends
// meanwhile, bodyOf closes the body to end the read.
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

// sound reports whether the body can be read again and has the declared length. If not, the body
// may be the reason why the last attempt failed, and the next attempt would fail too.
func (b body) sound() bool {
	again, err := b.again()
	if err != nil || again == nil {
		return err == nil
	}
	defer again.Close()
	n, err := io.Copy(io.Discard, again)
	return err == nil && (b.declared <= 0 || b.declared == n)
}

// joined reads from one source and closes another.
type joined struct {
	io.Reader
	io.Closer
}
