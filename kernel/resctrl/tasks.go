// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"fmt"
	"os"
)

func fileSize(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Size(), nil
}

// appendTask writes one id. The kernel does not care for O_APPEND; the plain file of a fake tree keeps its lines by it.
func appendTask(path string, tid int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("move task %d: %w", tid, err)
	}
	_, err = fmt.Fprintf(f, "%d\n", tid)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("move task %d: %w", tid, err)
	}
	return nil
}
