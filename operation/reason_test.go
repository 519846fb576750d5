package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// The reason of a parked operation is stored plain, and read by many. The last error is stored in full, and sealed.
func TestParkedReason_QuotesTheErrorUnlessSealed(t *testing.T) {
	t.Parallel()
	const failed = `the undo of step "charge" has failed: `
	failure := fmt.Errorf("the bank says: %w", &refusal{Code: 51})
	long := fmt.Errorf("%s: %w", strings.Repeat("é", 3000), failure)
	for name, test := range map[string]struct {
		err  error
		opts []idem.Option
		want string
	}{
		"plain":  {failure, nil, failed + `the bank says: refused with 51`},
		"long":   {long, nil, failed + strings.Repeat("é", 200)},
		"sealed": {failure, []idem.Option{sealerOf(7)}, failed + `*fmt.wrapError, *operation_test.refusal`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoTx(func(pgxTx, string) error { return test.err }))
				return idem.Response{}, errors.Join(err, idem.Reject(declined))
			})
			_, err := d.Do(context.Background(), s.pool, scope, "k", hashA, 0, append(test.opts, idem.WithWait(0))...)
			var parked *operation.ParkedError
			if !errors.As(err, &parked) || parked.Reason != operation.ReasonUndoFailed || parked.ReasonText != test.want || !errors.Is(parked.Cause, failure) {
				t.Fatalf("%v, because of %v; want %q", err, parked, test.want)
			}
			status, err := operation.Show(t.Context(), s.pool, parked.OperationID, test.opts...)
			if err != nil || status.Reason != parked.Reason || status.ReasonText != test.want {
				t.Errorf("%+v, %v", status, err)
			}
			text := test.err.Error()
			if e := status.LastError; e == nil || e.Step != "charge" || e.Text != strings.ToValidUTF8(text[:min(len(text), 4096)], "") || e.At.IsZero() {
				t.Errorf("the last error is %.80v", e)
			}
			if plain, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || (plain.LastError.Text == "sealed") != (test.opts != nil) {
				t.Errorf("without a Sealer the last error is %.80v, %v", plain.LastError, err)
			}
		})
	}
}
