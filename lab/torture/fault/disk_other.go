//go:build !linux

package fault

import (
	"errors"
	"os"
)

func syncFS(*os.File) error { return errors.ErrUnsupported }

func shutDownFS(*os.File) error { return errors.ErrUnsupported }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
