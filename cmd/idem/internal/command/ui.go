package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/cmd/idem/ui"
)

type uiCommand struct {
	Listen    string   `default:"127.0.0.1:7466" placeholder:"HOST:PORT" help:"Address of the page. Except on loopback, it asks for the token before it shows anything. Default: ${default}."`
	Write     bool     `help:"Let people who have the token make changes."`
	AllowHost []string `placeholder:"NAME" help:"Another host name of the page, such as that of a proxy."`
	sealKeys
}

// maxPageTimeout limits each SQL statement of a web page. It replaces a longer --timeout.
const maxPageTimeout = 10 * time.Second

// Run serves the page until the command is interrupted.
//
// In the background, handler.Run reads figures for the charts. Run waits for it to end, because the
// connection pool is closed when Run returns.
func (c *uiCommand) Run(s *session) error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return usage("--listen must be HOST:PORT, such as 127.0.0.1:7466: %v", err)
	}
	config, err := c.config(s)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(s.ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w; choose another address with --listen", err)
	}
	defer listener.Close()
	printed := c.protect(s, &config, listener.Addr())
	handler, err := ui.New(config)
	if err != nil {
		return usage("%v", err)
	}
	running, stop := context.WithCancel(s.ctx)
	var charts sync.WaitGroup
	charts.Go(func() { _ = handler.Run(running) })
	defer charts.Wait()
	defer stop()
	shown := shownUI{URL: "http://" + listener.Addr().String() + "/", Token: printed, ReadOnly: config.ReadOnly, Private: config.Private}
	if err := s.show(shown, func(p *page.Page) { c.text(p, &shown) }); err != nil {
		return err
	}
	return serve(s.ctx, listener, handler)
}

// config returns the configuration of the page. It queries the database, so that a wrong database
// address fails when the command starts.
func (c *uiCommand) config(s *session) (ui.Config, error) {
	timeout := time.Duration(s.globals.Timeout)
	if timeout == 0 || timeout > maxPageTimeout {
		timeout = maxPageTimeout
	}
	if err := s.inTx(func(ctx context.Context, tx pgx.Tx) error { _, err := record.Locate(ctx, tx); return err }); err != nil {
		return ui.Config{}, err
	}
	sealer, err := c.sealer(s)
	return ui.Config{Pool: s.pool, ReadOnly: !c.Write, Timeout: timeout, Sealer: sealer}, err
}

// protect sets in config who may see the page and who may make changes. If a token is needed and
// IDEM_UI_TOKEN is empty, it generates a token and returns it, so that Run can print it. On a
// loopback address every local user may see the page, and the page accepts only the host names in
// config.Hosts. See ui.Config.
func (c *uiCommand) protect(s *session, config *ui.Config, at net.Addr) (printed string) {
	here, ok := at.(*net.TCPAddr)
	config.Private = !ok || !here.IP.IsLoopback()
	config.Hosts = c.AllowHost
	if !config.Private {
		name, _, _ := net.SplitHostPort(c.Listen)
		config.Hosts = append([]string{"localhost", "127.0.0.1", "::1", here.IP.String(), cmp.Or(name, "localhost")}, c.AllowHost...)
	}
	if c.Write || config.Private {
		if config.Token = s.Getenv("IDEM_UI_TOKEN"); config.Token == "" {
			config.Token = (rand.Text() + rand.Text())[:32]
			return config.Token
		}
	}
	return ""
}

// shownUI is the JSON document of idem ui.
type shownUI struct {
	URL      string `json:"url"`
	Token    string `json:"token,omitempty"` // set only if idem ui generated the token
	ReadOnly bool   `json:"read_only"`
	Private  bool   `json:"private"` // the page asks for the token before it shows anything
}

// text prints the address of the page, and the token if the command has generated one.
func (c *uiCommand) text(p *page.Page, u *shownUI) {
	p.Printf("%s\n", u.URL)
	switch {
	case u.Token != "" && u.ReadOnly:
		p.Printf("to see the page, enter the token %s\n", u.Token)
	case u.Token != "":
		p.Printf("to act, enter the token %s\n", u.Token)
	}
}

// serve answers requests until ctx is done. Then it waits up to 4 seconds for requests in progress,
// and returns the cause of ctx.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return context.Cause(ctx)
}
