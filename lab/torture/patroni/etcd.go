package patroni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// etcd is a cluster of three nodes. It works as long as two are running.
type etcd struct {
	programs
	peers   string
	clients []int
	listen  []int
	nodes   []*child.Process
}

const etcdNodes = 3

// startEtcd starts the nodes and waits until they have a leader.
func startEtcd(ctx context.Context, p programs) (*etcd, error) {
	free, err := ports(2 * etcdNodes)
	if err != nil {
		return nil, err
	}
	e := &etcd{programs: p, clients: free[:etcdNodes], listen: free[etcdNodes:], nodes: make([]*child.Process, etcdNodes)}
	var peers []string
	for i, port := range e.listen {
		peers = append(peers, fmt.Sprintf("e%d=http://127.0.0.1:%d", i, port))
	}
	e.peers = strings.Join(peers, ",")
	for i := range e.nodes {
		if err := e.run(i); err != nil {
			e.stop()
			return nil, err
		}
	}
	return e, await(ctx, "etcd has a leader", func() bool { _, err := e.leader(ctx); return err == nil })
}

func (e *etcd) run(i int) (err error) {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", e.clients[i]), fmt.Sprintf("http://127.0.0.1:%d", e.listen[i])
	name := fmt.Sprintf("e%d", i)
	e.nodes[i], err = e.start(name, e.etcd, "--name", name, "--data-dir", e.dir+"/"+name+".etcd", "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", e.peers, "--initial-cluster-token", "fleet", "--unsafe-no-fsync")
	return err
}

// leader returns the index of the leading node.
func (e *etcd) leader(ctx context.Context) (int, error) {
	for i, port := range e.clients {
		var status struct {
			Leader string
			Header struct {
				Member string `json:"member_id"`
			}
		}
		err := call(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v3/maintenance/status", port), &status)
		if err == nil && status.Leader != "" && status.Leader == status.Header.Member {
			return i, nil
		}
	}
	return 0, errors.New("patroni: etcd has no leader")
}

func (e *etcd) stop() {
	for _, n := range e.nodes {
		if n != nil {
			n.Kill()
		}
	}
}

// call sends a request to an HTTP API and decodes the response into into.
func call(ctx context.Context, method, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// await polls is until it returns true. It fails if ctx ends first.
func await(ctx context.Context, what string, is func() bool) error {
	for !is() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("patroni: not in time: %s: %w", what, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
