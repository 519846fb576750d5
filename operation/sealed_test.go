package operation_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// Inputs and values are sealed, whichever process continues the operation.
func TestSealer_SealsInputsAndValues(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("secret", func(op *operation.Op, in string) (idem.Response, error) {
		value, err := operation.Tx(op, "keep", func(pgx.Tx) (string, error) { return "the secret value", nil })
		return idem.Response{Status: 200, Body: []byte(in + ", " + value)}, first(err, longSleep(op, ""))
	})
	sealed := sealerOf(7)
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, "the secret input", sealed, idem.WithWait(0)))
	s.wantCount(0, `select count(*) from idem.operations o join idem.steps s on s.operation_id = o.id
		where position('secret'::bytea in o.input) > 0 or position('secret'::bytea in s.value) > 0`)
	s.elapse()
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, idem.ErrUnreadable) {
		t.Errorf("without a Sealer: %v", err)
	}
	s.exec(`update idem.operations set wake_at = clock_timestamp()`)
	s.workWith(t, operation.WorkerConfig{Options: []idem.Option{sealed}}, d)
	eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.records where state = 'completed'`) == 1 })
	s.wantCount(0, `select count(*) from idem.records where position('secret'::bytea in body) > 0 or sealed_by is null`)
	wantBody(t, "the secret input, the secret value")(d.Do(t.Context(), s.pool, scope, "k", hashA, "", sealed))
}
