// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/tc"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/model/shape"
)

// networkLoop tells how the uplink is divided and what cannot be had.
func networkLoop(l *agent.Look) status.Loop {
	o := &l.Outcome.Network
	s := status.Loop{Name: "network", State: status.StateActive, Decision: o.Reason, At: l.Wall}
	if !o.Asked && len(o.Problems) == 0 {
		s.State, s.Decision = status.StateOff, decide.NoNetwork(l.Facts.View)
		return s
	}
	if n := &l.Outcome.Dynamic.Network; n.Missing != "" {
		s.State, s.Err = status.StateUnsupported, n.Missing
	} else if n.Limited != "" {
		s.State, s.Err = status.StateDegraded, n.Limited
	}
	return s
}

// traffic is what the classes have had of the uplink. A link that cannot be read now is left out.
func traffic(l *agent.Look) (out []talk.Traffic) {
	for i := range l.Outcome.Network.Directions {
		key := l.Outcome.Network.Directions[i].Key
		_, d, err := shape.ParseKey(key)
		if err != nil {
			continue
		}
		counts, err := tc.Shaper{}.Counts(key)
		if err != nil {
			continue
		}
		for _, name := range shape.Names() {
			if c, ok := counts[name]; ok {
				out = append(out, talk.Traffic{Direction: d.String(), Class: name, Bytes: c.Bytes, Dropped: c.Dropped})
			}
		}
	}
	return out
}
