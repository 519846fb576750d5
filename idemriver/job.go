package idemriver

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Job is one go at an operation. It says which one, and nothing of what it is about: neither key nor input is in River's tables.
type Job struct {
	Operation string `json:"operation"`
	Name      string `json:"name"`
	Epoch     int    `json:"epoch"` // in which nobody worked on it
	Round     int    `json:"round"` // how often a job was made of that
}

// Kind makes Job the arguments of a River job.
func (Job) Kind() string { return "idem_operation" }

// found is an operation as its row has it.
type found struct {
	id, scope, key, state string
	hash                  idem.Hash
	epoch                 int
}

func find(ctx context.Context, pool *pgxpool.Pool, id string) (*found, error) {
	o, hash := found{id: id}, []byte(nil)
	err := pool.QueryRow(ctx, `SELECT o.scope, o.key, o.state, o.hash, o.epoch FROM idem.operations o
		WHERE o.id OPERATOR(pg_catalog.=) ($1::pg_catalog.text)::pg_catalog.uuid`, id).Scan(&o.scope, &o.key, &o.state, &hash, &o.epoch)
	copy(o.hash[:], hash)
	return &o, err
}
