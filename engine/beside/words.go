// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside

import (
	"strconv"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// place is a setting without the names that not every writer knows.
type place struct {
	group  bool // a resctrl group, not a cgroup
	cgroup string
	knob   plan.Knob
	key    string
}

func placeOf(s *plan.Setting) place { return placeAt(s.Target, s.Knob, s.Key) }

func placeAt(t plan.Target, k plan.Knob, key string) place {
	return place{t.Level == plan.LevelGroup, t.Cgroup, k, key}
}

// word is a value that was put somewhere.
type word struct {
	value plan.Value
	said  *journal.Record
}

// lastWords is what a writer has put where, by its own hand or into a container's specification, as its ledger tells.
func lastWords(runDir, writer string) (map[place]word, error) {
	records, _, err := ledger.Read(runDir, writer) // a torn line says nothing
	if err != nil {
		return nil, err
	}
	out := map[place]word{}
	for _, e := range ledger.NewIndex(records, nil).Entries() {
		k, ok := plan.ParseKnob(e.Knob)
		if !ok || e.Done == nil || e.Done.Via != journal.ViaDirect && e.Done.Via != journal.ViaRuntime && e.Done.Via != journal.ViaSystemd {
			continue
		}
		value := plan.Text(e.Done.Want)
		if !k.Info().Text {
			n, err := strconv.ParseInt(e.Done.Want, 10, 64)
			if err != nil {
				continue
			}
			value = plan.Int(n)
		}
		out[placeAt(e.Target, k, e.Key)] = word{value, e.Done}
	}
	return out, nil
}
