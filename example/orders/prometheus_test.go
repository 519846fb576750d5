package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
)

// prometheusServer is a Prometheus that scrapes services and evaluates rules.
type prometheusServer struct{ url string }

// startPrometheus starts a Prometheus on the rules and on targets, which are services by the name of their job.
func startPrometheus(t *testing.T, rules string, targets map[string]string) *prometheusServer {
	t.Helper()
	program, dir := optional.Program(t, "prometheus"), t.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n")
	for job, target := range targets {
		fmt.Fprintf(&config, "- {job_name: %s, static_configs: [{targets: ['%s']}]}\n", job, strings.TrimPrefix(target, "http://"))
	}
	for name, text := range map[string]string{"rules.yml": rules, "prometheus.yml": config.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("prometheus said: %s", said)
		}
	})
	p := &prometheusServer{"http://" + address}
	p.await(t, "prometheus to be ready", func() bool {
		response, err := http.Get(p.url + "/-/ready")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	return p
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// alertLimit is how long a test waits for what has to come, and comes in seconds where nothing else is done.
const alertLimit = 10 * time.Minute

func (p *prometheusServer) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), alertLimit)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// query returns the labels of the series that an expression gives at this moment.
func (p *prometheusServer) query(t *testing.T, expr string) []map[string]string {
	t.Helper()
	response, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v %s", expr, err, body)
	}
	var found []map[string]string
	for _, series := range answer.Data.Result {
		found = append(found, series.Metric)
	}
	return found
}

// firing returns the alerts that fire for a job, by name.
func (p *prometheusServer) firing(t *testing.T, job string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, alert := range p.query(t, `ALERTS{alertstate="firing",job="`+job+`"}`) {
		names[alert["alertname"]] = true
	}
	return names
}
