package idemhttp

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// checkOptions returns why idem.Do would refuse opts, or nil. Without a pool Do gets as far as that, and no further.
func checkOptions(opts []idem.Option) error {
	check := func(opts ...idem.Option) error {
		opts = append(opts[:len(opts):len(opts)], idem.WithObserver(nil)) // nobody is to see this call
		_, err := idem.Do(context.Background(), nil, "scope", "key", idem.Hash{}, func(pgx.Tx) (idem.Response, error) {
			return idem.Response{}, errors.New("there is no transaction")
		}, opts...)
		return err
	}
	err := check(opts...)
	if noPool := check(); err.Error() == noPool.Error() {
		return nil
	}
	return err
}
