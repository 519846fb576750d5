package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// What another system says may tell of a person. The reason of a parked operation is stored plain, and is read by many.
func TestReasonQuotesAnErrorBrieflyAndNotAtAllWhereASealerIsSet(t *testing.T) {
	t.Parallel()
	failure := fmt.Errorf("the bank says: %w", &refusal{Code: 51})
	long := fmt.Errorf("%s: %w", strings.Repeat("é", 3000), failure)
	for name, test := range map[string]struct {
		err  error
		opts []idem.Option
		want string
	}{
		"plain":  {failure, nil, `undo "refund" has failed: the bank says: refused with 51`},
		"long":   {long, nil, `undo "refund" has failed: ` + strings.Repeat("é", 200)},
		"sealed": {failure, []idem.Option{sealerOf(7)}, `undo "refund" has failed: *fmt.wrapError, *operation_test.refusal`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := outsideStep(op, "charge"); err != nil {
					return idem.Response{}, err
				}
				err := operation.UndoTx(op, "refund", func(pgxTx) error { return test.err })
				if err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, idem.Reject(declined)
			})
			_, err := d.Do(context.Background(), s.pool, scope, "k", hashA, 0, append(test.opts, idem.WithWait(0))...)
			var parked *operation.ParkedError
			if !errors.As(err, &parked) || parked.Reason != test.want || !errors.Is(parked.Cause, failure) {
				t.Errorf("%v, because of %v; want %q", err, parked, test.want)
			}
			if got := s.text(`select reason from idem.operations`); got != test.want {
				t.Errorf("stored is %q", got)
			}
		})
	}
}
