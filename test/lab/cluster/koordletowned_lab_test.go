// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// overridden waits until koordctl says that somebody has written this field of the NodeSLO, which is not koord-manager here.
func (n *governed) overridden(t *testing.T, field, value string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		shown, err := n.shown(t)
		if err != nil {
			return err
		}
		if shown.NodeSLO == nil {
			return fmt.Errorf("koordlet does not know whose the NodeSLO's fields are")
		}
		if !slices.ContainsFunc(shown.NodeSLO.Overrides, func(o status.Override) bool {
			return o.Field == field && o.Value == value && len(o.By) == 1 && o.By[0].Manager != "" && !o.By[0].Time.IsZero()
		}) {
			return fmt.Errorf("not told of %s %s: %+v", field, value, shown.NodeSLO)
		}
		return nil
	})
}

// shown is what koordctl shows of the node.
func (n *governed) shown(t *testing.T) (shown status.Agent, err error) {
	t.Helper()
	out, err := n.shows(t, "node", "-o", "json")
	if err != nil {
		return shown, err
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		return shown, fmt.Errorf("koordctl top node: %w: %s", err, out)
	}
	return shown, nil
}
