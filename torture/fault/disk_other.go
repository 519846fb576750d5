//go:build !linux

package fault

import (
	"errors"
	"os"
)

func syncFS(*os.File) error { return errors.ErrUnsupported }

func shutDownFS(*os.File) error { return errors.ErrUnsupported }
