// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
)

// What the administrator says of CDI holds, but where the release cannot: its containers would start without their devices.
func TestCDIAsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		told                 string
		known, drops, expect bool
	}{
		{config.CDIAuto, false, false, false},
		{config.CDIAuto, true, false, true},
		{config.CDIOff, true, false, false},
		{config.CDIOn, false, false, true},
		{config.CDIOn, true, false, true},
		{config.CDIOn, false, true, false},
	} {
		cfg := config.Default().Node
		cfg.CDI = c.told
		v := NewViews(cfg, Static{Topology: &topo.Topology{}}, nil, "test")
		v.SetRuntime(node.Runtime{Fields: node.Fields{CDI: c.known}, NoCDI: c.drops})
		if got := v.Load().Runtime.Fields.CDI; got != c.expect {
			t.Errorf("cdi %s, applied by its version %v, dropped %v: %v", c.told, c.known, c.drops, got)
		}
	}
}
