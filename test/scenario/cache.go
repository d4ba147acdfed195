// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/model/node"
)

// parseCache reads the payload of pods.json through daemon/handoff, so that a scenario holds what the plugin would read.
func parseCache(payload []byte) (cache map[string]node.PodSpec, err error) {
	text, err := json.Marshal(map[string]any{"version": handoff.Version, "generation": 1, "payload": json.RawMessage(payload)})
	if err != nil {
		return nil, fmt.Errorf("wrap pod cache: %w", err)
	}
	dir, err := os.MkdirTemp("", "koord-scenario")
	if err != nil {
		return nil, fmt.Errorf("read pod cache: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.WriteFile(filepath.Join(dir, handoff.PodsFile), text, 0o600); err != nil {
		return nil, fmt.Errorf("read pod cache: %w", err)
	}
	s := handoff.Read(handoff.Options{RunDir: dir})
	if len(s.Problems) > 0 {
		return nil, fmt.Errorf("read pod cache: %s", s.Problems[0].Reason)
	}
	if len(s.Pods) == 0 {
		return nil, errors.New("read pod cache: no pod in it")
	}
	return s.Pods, nil
}
