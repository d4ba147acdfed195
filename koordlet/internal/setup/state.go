// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
)

// stateFile keeps what the loops know over a restart of the agent, beside what they have in force: on a tmpfs, so that
// neither outlives a boot.
type stateFile string

// read is the zero state when there is none, which is not known then.
func (f stateFile) read() (s decide.State, known bool, err error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return decide.State{}, false, fmt.Errorf("read %s: %w", f, err)
	}
	return s, true, nil
}

func (f stateFile) write(s decide.State) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write %s: %w", f, err)
	}
	return atomicfile.Write(string(f), append(data, '\n'))
}
